"""Workloads of P, D and the router: StatefulSets and Deployments, and the objects that the pods of a revision need.

Tests: tests/manifests/test_render.py, tests/manifests/test_nodes.py, tests/manifests/test_host_local.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.api import names
from pdinference.api.engines import slots
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import PDInference, RoleSpec, Spec, defaults
from pdinference.engine import lifecycle
from pdinference.engine.arguments import to_argv
from pdinference.engine.kv_tiers import DISK_TIER_MOUNT, disk_tier_command
from pdinference.engine.router import API_KEYS_MOUNT, TLS_MOUNT, router_command
from pdinference.engine.vllm import CACHE_MOUNT, effective_defaults
from pdinference.manifests.children import child, command_values
from pdinference.manifests.model_preparation import init_containers, seen_as_by_vllm
from pdinference.manifests.pods.compile_cache import compile_cache_mounts, compile_cache_volumes
from pdinference.manifests.pods.devices import added_capabilities
from pdinference.manifests.pods.engine_containers import EngineContainer, engine_containers, has_container_per_engine
from pdinference.manifests.pods.hardening import hardened
from pdinference.manifests.pods.kv_storage import kv_mounts, kv_volumes, shared_memory_size, volume_group
from pdinference.manifests.pods.model_volumes import model_mounts, model_volumes
from pdinference.manifests.pods.overlay import for_containers, merged
from pdinference.manifests.pods.own_volumes import (
    API_KEYS_VOLUME,
    TLS_VOLUME,
    secret_mount,
    secret_volume,
    token_mount,
    token_volume,
)
from pdinference.manifests.pods.placement import (
    engine_scheduling,
    pod_labels,
    router_resources,
    router_scheduling,
)
from pdinference.manifests.pods.scripts import script_files, scripts_mount, scripts_of, scripts_volumes
from pdinference.manifests.settings import RenderSettings
from pdinference.manifests.templates import Manifest, fill


def further_nodes(resource: PDInference, role: Role) -> range:
    """Ranks of the further nodes of an instance of a role."""
    return range(1, resource.spec.of(role).parallelism.nodes)


def has_stateful_sets(resource: PDInference, role: Role) -> bool:
    """Whether the pods of a role are of StatefulSets: those of P, and of instances whose nodes find each other."""
    return role is Role.PARAMETER or bool(further_nodes(resource, role))


@dataclass(frozen=True)
class EnginePod:
    """The pods of a role.

    Attributes:
        template: The pod template.
        scripts: Names of the programs of ours that the pods need.
    """

    template: Manifest
    scripts: tuple[str, ...]


def engine_pod(resource: PDInference, role: Role, settings: RenderSettings, node_rank: int = 0) -> EnginePod:
    """The pods of a role, on one node of an instance."""
    spec, rdma = resource.spec.of(role, node_rank), resource.spec.rdma
    containers = engine_containers(resource, role, node_rank)
    several = spec.parallelism.nodes > 1
    volumes = [*kv_volumes(resource, spec), *compile_cache_volumes(resource.spec)]
    disk = spec.kv_tiers.disk if spec.kv_tiers else None
    disk_tier = disk_tier_command(disk) if disk else None
    scripts = scripts_of([*(each.command for each in containers), *([disk_tier] if disk_tier else [])])
    pod = fill(
        "engine-pod",
        labels=pod_labels(resource.metadata.name, role, spec.placement)
        | (names.node_labels(role, node_rank) if several else {}),
        image=resource.spec.engine.image,
        containers=[_container(container) for container in containers],
        shares_processes=has_container_per_engine(resource.spec),
        capabilities={"drop": ["ALL"], **added_capabilities(rdma, settings.policy)},
        scheduling=engine_scheduling(resource, role, spec, node_rank),
        startup_seconds=defaults.startup_seconds(resource.spec),
        pre_stop_seconds=lifecycle.PRE_STOP_SECONDS,
        grace_seconds=lifecycle.grace_seconds(resource.spec.rollout.drain_seconds),
        defaults=_defaults(resource.spec, role),
        cache_mount=CACHE_MOUNT,
        group=volume_group(volumes),
        shared_memory=shared_memory_size(spec, _engines(resource.spec)),
        disk_tier=command_values(disk_tier) if disk_tier else None,
        disk_tier_mount=DISK_TIER_MOUNT,
        scripts_mount=scripts_mount(),
        volumes=[*model_volumes(resource.spec.model), *volumes, *scripts_volumes(scripts)],
        mounts=[*model_mounts(resource.spec.model), *kv_mounts(resource, spec), *compile_cache_mounts(resource.spec)],
        init_containers=init_containers(resource, role, settings.model_image),
    )
    for overlay in _overlays(resource.spec, role, spec):
        pod = merged(pod, overlay)
    return EnginePod(seen_as_by_vllm(hardened(pod)), scripts)


def _container(container: EngineContainer) -> Manifest:
    return {**vars(container), "command": command_values(container.command)}


def _engines(spec: Spec) -> int:
    """Number of engines in a pod."""
    return 1 if spec.host_local is None else len(slots(spec.host_local))


def _defaults(spec: Spec, role: Role) -> str:
    """Options that the operator sets by default, of each role in the pod."""
    if spec.host_local is None:
        return " ".join(to_argv(effective_defaults(spec, role)))
    found = {each: " ".join(to_argv(effective_defaults(spec, each))) for each in ENGINE_ROLES}
    return "; ".join(f"{each}: {options}" for each, options in found.items() if options)


def _overlays(spec: Spec, role: Role, own: RoleSpec) -> list[Mapping[str, Any]]:
    """The overlays of a pod. Of two roles in a pod, each changes the containers of its engines."""
    if spec.host_local is None:
        return [own.pod_template]
    both = [(each, spec.of(each).pod_template) for each in ENGINE_ROLES]
    if not has_container_per_engine(spec):
        return [overlay for _, overlay in both]
    names_of = {each: [slot.name for slot in slots(spec.host_local) if slot.role is each] for each in ENGINE_ROLES}
    return [for_containers(overlay, names.ENGINE_CONTAINER, names_of[each]) for each, overlay in both]


def engine_workload(resource: PDInference, role: Role, pod: Manifest, revision: str) -> Manifest:
    """The workload of a role: of instances on several nodes, that of the first nodes."""
    if not has_stateful_sets(resource, role):
        return _decode_deployment(resource, pod, revision)
    return _stateful_set(
        resource, role, pod, revision, workload=names.revision_object(resource.metadata.name, role, revision)
    )


def node_stateful_set(resource: PDInference, role: Role, node_rank: int, pod: Manifest, revision: str) -> Manifest:
    """The StatefulSet of one further node of each instance of a role. Its ordinals are those of the instances."""
    name, node = resource.metadata.name, names.node_labels(role, node_rank)
    workload = _stateful_set(
        resource,
        role,
        pod,
        revision,
        workload=names.node_workload(name, role, node_rank, revision),
        selector=names.role_selector(name, role, revision) | node,
    )
    workload["metadata"]["labels"] |= node
    return workload


def _stateful_set(resource: PDInference, role: Role, pod: Manifest, revision: str, **values: Any) -> Manifest:
    return _workload(
        resource,
        role,
        "engine-statefulset",
        pod,
        revision=revision,
        service=names.role_object(resource.metadata.name, role),
        replicas=_replicas(resource, role),
        **values,
    )


def _decode_deployment(resource: PDInference, pod: Manifest, revision: str) -> Manifest:
    """The Deployment of D pods."""
    return _workload(
        resource,
        Role.DECODE,
        "decode-deployment",
        pod,
        workload=names.revision_object(resource.metadata.name, Role.DECODE, revision),
        replicas=_replicas(resource, Role.DECODE),
        progress_deadline_seconds=defaults.progress_deadline_seconds(resource.spec),
        revision=revision,
    )


def router_deployment(resource: PDInference, settings: RenderSettings, revision: str) -> Manifest:
    """The Deployment of the router, which sends requests to the pods of one revision."""
    router, name = resource.spec.router, resource.metadata.name
    secrets = ((API_KEYS_VOLUME, router.api_keys, API_KEYS_MOUNT), (TLS_VOLUME, router.tls, TLS_MOUNT))
    mounted = [(volume, source.secret_name, path) for volume, source, path in secrets if source is not None]
    deployment = child(
        resource,
        Role.ROUTER,
        "router-deployment",
        labels={**pod_labels(name, Role.ROUTER, router.placement), names.LABEL_REVISION: revision},
        replicas=router.replicas,
        # A router pod is ready only after P and D, so its deadline includes theirs.
        progress_deadline_seconds=defaults.progress_deadline_seconds(resource.spec),
        image=router.image or settings.router_image,
        command=command_values(router_command(resource, revision, otlp_endpoint=settings.otlp_endpoint)),
        scales_to_zero=resource.spec.scale_to_zero is not None,
        resources=router_resources(router.resources),
        scheduling=router_scheduling(resource, revision),
        grace_seconds=lifecycle.grace_seconds(lifecycle.ROUTER_DRAIN_SECONDS),
        volumes=[token_volume(), *(secret_volume(volume, secret) for volume, secret, _ in mounted)],
        mounts=[token_mount(), *(secret_mount(volume, path) for volume, _, path in mounted)],
    )
    deployment["spec"]["template"] = hardened(merged(deployment["spec"]["template"], router.pod_template))
    return deployment


def _workload(
    resource: PDInference, role: Role, template: str, pod: Manifest, *, revision: str, **values: Any
) -> Manifest:
    """A workload with the pods of one revision of a role."""
    values = {"selector": names.role_selector(resource.metadata.name, role, revision), **values}
    workload = child(resource, role, template, **values)
    workload["metadata"]["labels"][names.LABEL_REVISION] = revision
    # The pod is set here, because rendering it in the template would dominate the time to parse YAML.
    workload["spec"]["template"] = pod
    return workload


def device_claim_template(resource: PDInference, role: Role, devices: dict[str, Any], revision: str) -> Manifest:
    """The ResourceClaimTemplate for the devices of each pod of a role."""
    template = child(
        resource,
        role,
        "device-claim-template",
        claim_template=names.revision_object(resource.metadata.name, role, revision),
        devices=devices,
    )
    template["metadata"]["labels"][names.LABEL_REVISION] = revision
    return template


def scripts_config_map(resource: PDInference, role: Role, scripts: Iterable[str], revision: str) -> Manifest:
    """The ConfigMap with the programs of ours that the pods of a role run."""
    config_map = child(
        resource,
        role,
        "scripts-configmap",
        config_map=names.revision_object(resource.metadata.name, role, revision),
        files=script_files(scripts),
    )
    config_map["metadata"]["labels"][names.LABEL_REVISION] = revision
    return config_map


def _replicas(resource: PDInference, role: Role) -> int | None:
    """The replica count of the manifest; None if the operator allocates it (autoscaling or a GPU budget)."""
    spec = resource.spec.of(role)
    together = resource.spec.autoscaling
    counted = together is not None and together.gpu_budget is not None
    return None if spec.autoscaled or counted else spec.replicas
