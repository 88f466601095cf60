"""Renders all children of a `PDInference`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests.autoscaler import autoscalers, scalers
from pdinference.manifests.children import child, fingerprint, identity
from pdinference.manifests.model_preparation import downloads_first, job_values, wants_job
from pdinference.manifests.network import (
    disruption_budget,
    engine_network_policy,
    engine_services,
    router_network_policy,
    router_service,
)
from pdinference.manifests.pods.devices import claimed, name_template
from pdinference.manifests.pods.hardening import require_sound
from pdinference.manifests.pods.scripts import name_scripts, script_files
from pdinference.manifests.policy import require_allowed
from pdinference.manifests.route import http_routes
from pdinference.manifests.settings import RenderSettings
from pdinference.manifests.templates import Manifest, fill
from pdinference.manifests.workloads import (
    EnginePod,
    device_claim_template,
    engine_pod,
    engine_workload,
    further_nodes,
    node_stateful_set,
    router_deployment,
    scripts_config_map,
)


@dataclass(frozen=True)
class Rendered:
    """The children of one resource.

    Attributes:
        objects: The objects in the order of application: dependencies of pods first. Autoscaled workloads have no
            replica count.
        revision: Hash of the pod templates of P and D.
        model_job: Name of the Job that downloads or inspects the model; empty without one.
        downloads_first: Whether P and D must wait for that Job.
    """

    objects: tuple[Manifest, ...]
    revision: str
    model_job: str = ""
    downloads_first: bool = False


def render(resource: PDInference, settings: RenderSettings) -> Rendered:
    """Render all children of a resource.

    Raises:
        InvalidResourceError: The installation policy does not allow the resource.
    """
    require_allowed(resource, settings)
    roles = resource.spec.workload_roles
    pods = {role: engine_pod(resource, role, settings) for role in roles}
    nodes = {
        (role, rank): engine_pod(resource, role, settings, rank)
        for role in roles
        for rank in further_nodes(resource, role)
    }
    claims = {role: devices for role in roles if (devices := _claimed(resource, role))}
    of_roles = (*pods.items(), *((role, pod) for (role, _), pod in nodes.items()))
    scripts = _scripts(of_roles)
    revision = _revision(pods | nodes, claims, scripts)
    for role, pod in of_roles:
        pod.template["metadata"]["labels"][names.LABEL_REVISION] = revision
        name_template(pod.template, names.revision_object(resource.metadata.name, role, revision))
        name_scripts(pod.template, names.revision_object(resource.metadata.name, role, revision))

    model = model_job(resource, settings) if wants_job(resource.spec.model) else ()
    objects = (
        *identity(resource, Role.ROUTER),
        *(engine_network_policy(resource, settings, role) for role in roles),
        router_network_policy(resource, settings),
        *(disruption_budget(resource, role) for role in (*roles, Role.ROUTER)),
        *engine_services(resource),
        router_service(resource),
        *(device_claim_template(resource, role, devices, revision) for role, devices in claims.items()),
        *(scripts_config_map(resource, role, needed, revision) for role, needed in scripts.items()),
        *model,
        *(
            workload
            for role in roles
            for workload in (
                engine_workload(resource, role, pods[role].template, revision),
                *(
                    node_stateful_set(resource, role, rank, nodes[role, rank].template, revision)
                    for rank in further_nodes(resource, role)
                ),
            )
        ),
        router_deployment(resource, settings, revision),
        *http_routes(resource),
        *scalers(resource).values(),
        *autoscalers(resource, settings).values(),
    )
    require_sound(objects, settings.policy)
    return Rendered(
        objects=objects,
        revision=revision,
        model_job=model[-1]["metadata"]["name"] if model else "",
        downloads_first=downloads_first(resource.spec.model),
    )


def _claimed(resource: PDInference, role: Role) -> dict[str, Any] | None:
    return claimed(resource.spec.of(role), resource.spec.devices_per_pod(role))


def _scripts(pods: Iterable[tuple[Role, EnginePod]]) -> dict[Role, list[str]]:
    """Names of the programs of ours that the pods of each role need. Roles without any are left out."""
    needed: dict[Role, set[str]] = {}
    for role, pod in pods:
        needed.setdefault(role, set()).update(pod.scripts)
    return {role: sorted(names) for role, names in needed.items() if names}


def _revision(
    pods: Mapping[Any, EnginePod], claims: Mapping[Role, dict[str, Any]], scripts: Mapping[Role, Iterable[str]]
) -> str:
    """Hash of all that pods are made of. Another text of a program is another revision, too."""
    return fingerprint(
        {str(key): pod.template for key, pod in pods.items()}
        | {f"{role}-devices": devices for role, devices in claims.items()}
        | {f"{role}-scripts": script_files(needed) for role, needed in scripts.items()}
    )


def model_job(resource: PDInference, settings: RenderSettings) -> tuple[Manifest, ...]:
    """The model Job and its service account. The Job's name contains a hash of its immutable pod template."""
    nameless = fill("model-job", object="", **job_values(resource, settings.model_image, ""))
    job = names.model_job(resource.metadata.name, fingerprint(nameless))
    return (
        *identity(resource, Role.MODEL, job=job),
        child(resource, Role.MODEL, "model-job", **job_values(resource, settings.model_image, job)),
    )
