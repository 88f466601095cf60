"""All children of a `PDInference`."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDBatch, PDInference, RoleSpec, defaults
from pdinference.engine import lifecycle
from pdinference.engine.arguments import to_argv
from pdinference.engine.command import Command
from pdinference.engine.kv_tiers import DISK_TIER_MOUNT, disk_tier_command
from pdinference.engine.router import router_command
from pdinference.engine.vllm import CACHE_MOUNT, effective_defaults, engine_command
from pdinference.manifests.autoscaler import autoscaler_values
from pdinference.manifests.devices import added_capabilities, claimed, name_template
from pdinference.manifests.kv_storage import kv_mounts, kv_volumes, shared_memory_size, volume_group
from pdinference.manifests.model import downloads_first, init_containers, job_values, wants_job
from pdinference.manifests.overlay import merged
from pdinference.manifests.placement import (
    as_api,
    container_resources,
    engine_scheduling,
    pod_labels,
    router_resources,
    scheduling,
)
from pdinference.manifests.policy import require_allowed
from pdinference.manifests.templates import Manifest, fill
from pdinference.manifests.transfer import router_ports, transfer_annotations, transfer_ports
from pdinference.manifests.volumes import model_mounts, model_volumes

# Letters only, or YAML readers take a revision such as 04229333 for a number; no vowels, so that none is a word.
_AS_CONSONANTS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")


@dataclass(frozen=True)
class RenderSettings:
    """What the operator was installed with.

    Attributes:
        router_image: Router image for resources that name none.
        allowed_host_paths: Folders of nodes that pods may mount, with all that is below.
        model_image: Image that downloads, checks and inspects models.
        runner_image: Image of batch runners: the operator's own.
        operator_namespace: Where the operator's own pods are; empty when it does not run in a pod.
        operator_labels: What selects these pods.
    """

    router_image: str = names.DEFAULT_ROUTER_IMAGE
    allowed_host_paths: tuple[str, ...] = ()
    model_image: str = names.DEFAULT_MODEL_IMAGE
    runner_image: str = names.DEFAULT_OPERATOR_IMAGE
    operator_namespace: str = ""
    operator_labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Rendered:
    """The children of one resource.

    Attributes:
        objects: All but the autoscalers, in the order in which they are best applied: what pods refer to comes before
            the pods. Workloads that are autoscaled say nothing about replicas.
        autoscalers: The HPA of each role that has one, for the workload of this revision.
        revision: Identity of the P/D pair: equal exactly if the pods of both roles are.
        model_job: Name of the Job that downloads or inspects the model; empty without.
        downloads_first: Whether P and D have to wait for that Job.
    """

    objects: tuple[Manifest, ...]
    revision: str
    autoscalers: Mapping[Role, Manifest]
    model_job: str = ""
    downloads_first: bool = False


def render(resource: PDInference, settings: RenderSettings) -> Rendered:
    """Render all children of a resource.

    Raises:
        InvalidResourceError: The resource asks for what the installation does not allow.
    """
    require_allowed(resource, settings.allowed_host_paths)
    pods = {role: _engine_pod(resource, role, settings) for role in names.ENGINE_ROLES}
    nodes = {rank: _engine_pod(resource, Role.PARAMETER, settings, rank) for rank in further_nodes(resource)}
    claims = {role: devices for role in names.ENGINE_ROLES if (devices := claimed(resource.spec.of(role)))}
    revision = _revision(pods | nodes, claims)
    for role, pod in (*pods.items(), *((Role.PARAMETER, pod) for pod in nodes.values())):
        pod["metadata"]["labels"][names.LABEL_REVISION] = revision
        name_template(pod, names.device_claim_template(resource.metadata.name, role, revision))

    model = _model_job(resource, settings) if wants_job(resource.spec.model) else ()
    objects = (
        *_identity(resource, Role.ROUTER),
        *(_engine_network_policy(resource, settings, role) for role in names.ENGINE_ROLES),
        *(_disruption_budget(resource, role) for role in names.SERVING_ROLES),
        _parameter_service(resource),
        _router_service(resource),
        *(_device_claim_template(resource, role, devices, revision) for role, devices in claims.items()),
        *model,
        _parameter_stateful_set(resource, pods[Role.PARAMETER], revision),
        *(_node_stateful_set(resource, rank, pod, revision) for rank, pod in nodes.items()),
        _decode_deployment(resource, pods[Role.DECODE], revision),
        _router_deployment(resource, settings, revision),
    )
    return Rendered(
        objects=objects,
        revision=revision,
        autoscalers=_autoscalers(resource, revision),
        model_job=model[-1]["metadata"]["name"] if model else "",
        downloads_first=downloads_first(resource.spec.model),
    )


def _revision(pods: Mapping[Any, Manifest], claims: dict[Role, dict[str, Any]]) -> str:
    parts = {str(key): pod for key, pod in pods.items()}
    return _fingerprint({**parts, **{f"{role}-devices": devices for role, devices in claims.items()}})


def _fingerprint(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[: names.REVISION_LENGTH]
    return digest.translate(_AS_CONSONANTS)


def further_nodes(resource: PDInference) -> range:
    """Ranks of the nodes of a P instance after the first."""
    return range(1, resource.spec.parameter.parallelism.nodes)


def _child(resource: PDInference, role: Role, template: str, **values: Any) -> Manifest:
    """Fill in the template of a child, and add what all children have in common."""
    name = resource.metadata.name
    manifest = fill(
        template,
        **{
            "object": names.role_object(name, role),
            "namespace": resource.metadata.namespace,
            "selector": names.role_selector(name, role),
            "labels": names.role_labels(name, role),
            **values,
        },
    )
    manifest["metadata"] |= {
        "namespace": resource.metadata.namespace,
        "labels": names.role_labels(name, role) | manifest["metadata"].get("labels", {}),
        "ownerReferences": [owner_reference(resource)],
    }
    return manifest


def owner_reference(resource: PDInference | PDBatch) -> dict[str, Any]:
    """What ties a child to its resource."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": resource.kind,
        "name": resource.metadata.name,
        "uid": resource.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def command_values(command: Command) -> dict[str, Any]:
    """What templates need of a command."""
    return {
        "program": list(command.program),
        "arguments": list(command.arguments),
        "environment": list(command.environment),
    }


def _engine_pod(resource: PDInference, role: Role, settings: RenderSettings, node_rank: int = 0) -> Manifest:
    spec, rdma = resource.spec.of(role, node_rank), resource.spec.transfer.rdma
    several = spec.parallelism.nodes > 1
    volumes = kv_volumes(resource, spec)
    disk = spec.kv_tiers.disk if spec.kv_tiers else None
    pod = fill(
        "engine-pod",
        labels=pod_labels(resource.metadata.name, role, spec.placement)
        | (names.node_labels(node_rank) if several else {}),
        serves=node_rank == 0,
        annotations=transfer_annotations(resource.spec.transfer, role),
        image=resource.spec.engine.image,
        command=command_values(engine_command(resource, role, node_rank)),
        resources=container_resources(spec, rdma),
        capabilities={"drop": ["ALL"], **added_capabilities(rdma)},
        scheduling=engine_scheduling(resource, role, spec, node_rank),
        startup_seconds=defaults.startup_seconds(resource.spec),
        grace_seconds=lifecycle.grace_seconds(resource.spec.rollout.drain_seconds),
        defaults=" ".join(to_argv(effective_defaults(resource.spec, role))),
        cache_mount=CACHE_MOUNT,
        ports=transfer_ports(resource.spec.transfer, role),
        group=volume_group(volumes),
        shared_memory=shared_memory_size(spec),
        disk_tier=command_values(disk_tier_command(disk)) if disk else None,
        disk_tier_mount=DISK_TIER_MOUNT,
        volumes=[*model_volumes(resource.spec.model), *volumes],
        mounts=[*model_mounts(resource.spec.model), *kv_mounts(resource, spec)],
        init_containers=init_containers(resource, settings.model_image),
    )
    return merged(pod, spec.pod_template)


def _parameter_stateful_set(resource: PDInference, pod: Manifest, revision: str) -> Manifest:
    return _workload(
        resource,
        Role.PARAMETER,
        "parameter-statefulset",
        pod,
        workload=names.parameter_workload(resource.metadata.name, revision),
        service=names.role_object(resource.metadata.name, Role.PARAMETER),
        replicas=_replicas(resource.spec.parameter),
        revision=revision,
    )


def _node_stateful_set(resource: PDInference, node_rank: int, pod: Manifest, revision: str) -> Manifest:
    """One further node of each P instance: its ordinals are those of the instances, so that they scale alike."""
    name = resource.metadata.name
    node = names.node_labels(node_rank)
    workload = _workload(
        resource,
        Role.PARAMETER,
        "parameter-statefulset",
        pod,
        workload=names.node_workload(name, node_rank, revision),
        selector=names.role_selector(name, Role.PARAMETER, revision) | node,
        service=names.role_object(name, Role.PARAMETER),
        replicas=_replicas(resource.spec.parameter),
        revision=revision,
    )
    workload["metadata"]["labels"] |= node
    return workload


def _decode_deployment(resource: PDInference, pod: Manifest, revision: str) -> Manifest:
    return _workload(
        resource,
        Role.DECODE,
        "decode-deployment",
        pod,
        workload=names.decode_workload(resource.metadata.name, revision),
        replicas=_replicas(resource.spec.decode),
        progress_deadline_seconds=_progress_deadline(resource),
        revision=revision,
    )


def _progress_deadline(resource: PDInference) -> int:
    return lifecycle.progress_deadline_seconds(defaults.startup_seconds(resource.spec))


def _replicas(spec: RoleSpec) -> int | None:
    """How many pods the manifest asks for; None leaves that to the HPA."""
    return None if spec.autoscaled else spec.replicas


def _autoscalers(resource: PDInference, revision: str) -> dict[Role, Manifest]:
    name = resource.metadata.name
    values = {role: autoscaler_values(name, role, resource.spec.of(role), revision) for role in names.ENGINE_ROLES}
    return {role: _child(resource, role, "autoscaler", **given) for role, given in values.items() if given is not None}


def _workload(
    resource: PDInference, role: Role, template: str, pod: Manifest, *, revision: str, **values: Any
) -> Manifest:
    """What runs the pods of one revision of a role."""
    values = {"selector": names.role_selector(resource.metadata.name, role, revision), **values}
    workload = _child(resource, role, template, **values)
    workload["metadata"]["labels"][names.LABEL_REVISION] = revision
    # Set here and not in the template: a pod is most of the text, and reading YAML is most of the time.
    workload["spec"]["template"] = pod
    return workload


def _device_claim_template(resource: PDInference, role: Role, devices: dict[str, Any], revision: str) -> Manifest:
    template = _child(
        resource,
        role,
        "device-claim-template",
        claim_template=names.device_claim_template(resource.metadata.name, role, revision),
        devices=devices,
    )
    template["metadata"]["labels"][names.LABEL_REVISION] = revision
    return template


def _parameter_service(resource: PDInference) -> Manifest:
    return _child(resource, Role.PARAMETER, "parameter-service", early=bool(further_nodes(resource)))


def _engine_network_policy(resource: PDInference, settings: RenderSettings, role: Role) -> Manifest:
    name = resource.metadata.name
    peers = [Role.DECODE if role is Role.PARAMETER else Role.PARAMETER]
    if role is Role.PARAMETER and further_nodes(resource):
        peers.append(role)
    return _child(
        resource,
        role,
        "engine-networkpolicy",
        pods=_all_pods(resource, role),
        router_selector=names.role_selector(name, Role.ROUTER),
        router_ports=[names.ENGINE_PORT_NAME, *(port["name"] for port in router_ports(resource.spec.transfer, role))],
        peers=[_all_pods(resource, peer) for peer in peers],
        operator={"namespace": settings.operator_namespace, "labels": dict(settings.operator_labels)},
    )


def _disruption_budget(resource: PDInference, role: Role) -> Manifest:
    return _child(resource, role, "poddisruptionbudget", pods=_all_pods(resource, role))


def _all_pods(resource: PDInference, role: Role) -> dict[str, Any]:
    return names.pods_of(resource.metadata.name, role, nodes=resource.spec.parameter.parallelism.nodes)


def _identity(resource: PDInference, role: Role, **values: Any) -> tuple[Manifest, ...]:
    """An account, and its rights: those of the role's own template."""
    return tuple(
        _child(resource, role, template, **values) for template in ("serviceaccount", f"{role}-role", "rolebinding")
    )


def _model_job(resource: PDInference, settings: RenderSettings) -> tuple[Manifest, ...]:
    """The Job, whose pods cannot be changed any more, and so are part of its name; and its account."""
    nameless = fill("model-job", object="", **job_values(resource, settings.model_image, ""))
    job = names.model_job(resource.metadata.name, _fingerprint(nameless))
    return (
        *_identity(resource, Role.MODEL, job=job),
        _child(resource, Role.MODEL, "model-job", **job_values(resource, settings.model_image, job)),
    )


def _router_service(resource: PDInference) -> Manifest:
    return _child(
        resource,
        Role.ROUTER,
        "router-service",
        object=names.router_service(resource.metadata.name),
        service=as_api(resource.spec.router.service),
    )


def _router_deployment(resource: PDInference, settings: RenderSettings, revision: str) -> Manifest:
    router = resource.spec.router
    name = resource.metadata.name
    deployment = _child(
        resource,
        Role.ROUTER,
        "router-deployment",
        labels={**pod_labels(name, Role.ROUTER, router.placement), names.LABEL_REVISION: revision},
        replicas=router.replicas,
        # A router pod is ready when P and D are, so it waits as long as they may take.
        progress_deadline_seconds=_progress_deadline(resource),
        image=router.image or settings.router_image,
        command=command_values(router_command(resource, revision)),
        resources=router_resources(router.resources),
        scheduling=scheduling(name, Role.ROUTER, router.placement),
        grace_seconds=lifecycle.grace_seconds(lifecycle.ROUTER_DRAIN_SECONDS),
    )
    deployment["spec"]["template"] = merged(deployment["spec"]["template"], router.pod_template)
    return deployment
