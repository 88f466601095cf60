"""What an installation allows; the rest is refused, whoever asks.

A PDInference may be created by people who may not create any pod they like, and the operator would create it for them.
So an overlay (`podTemplate`) must not reach out of the pod, nor take from the operator what keeps the pair working.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.engine import OWNED_ENVIRONMENT
from pdinference.api.validation import InvalidResourceError, Problem
from pdinference.manifests.own_volumes import own_volume_problems
from pdinference.manifests.settings import RenderSettings

Json = Mapping[str, Any]

_TEMPLATE_MEMBERS = frozenset({"metadata", "spec"})
_METADATA_MEMBERS = frozenset({"labels", "annotations"})
_RESERVED_LABELS = (f"{names.GROUP}/", "app.kubernetes.io/")
_REFUSED_IN_POD = {
    "hostNetwork": "a pod stays in its own network",
    "hostPID": "a pod sees its own processes only",
    "hostIPC": "a pod shares memory with nobody",
    "serviceAccount": "pods run as the account that the operator gives them",
    "serviceAccountName": "pods run as the account that the operator gives them",
    "automountServiceAccountToken": "vLLM needs no access to the API server",
    "nodeName": "the scheduler places pods; use placement",
    "ephemeralContainers": "use kubectl debug",
    "restartPolicy": "pods of a Deployment and a StatefulSet always restart",
    "terminationGracePeriodSeconds": "use spec.rollout.drainSeconds",
}
_REFUSED_IN_OWN_CONTAINER = {
    "command": "the operator sets it",
    "args": "use the args field of the role or of spec.engine",
    "image": "use spec.engine.image or spec.router.image",
    "lifecycle": "pods stop in an order that keeps requests alive; use spec.rollout.drainSeconds",
    "ports": "ports are part of Services and NetworkPolicies",
}
_OWNED_VARIABLES = frozenset(OWNED_ENVIRONMENT)
_OWN_CONTAINERS = frozenset(
    {
        names.ENGINE_CONTAINER,
        names.ROUTER_CONTAINER,
        names.MODEL_CONTAINER,
        names.ACTIVATOR_CONTAINER,
        names.DISK_TIER_CONTAINER,
    }
)
_ALLOWED_CAPABILITIES = frozenset({"IPC_LOCK"})  # RDMA pins memory


def require_allowed(resource: PDInference, settings: RenderSettings) -> None:
    """Refuse what the installation does not allow.

    Args:
        resource: A valid resource.
        settings: What the operator was installed with.

    Raises:
        InvalidResourceError: The resource asks for more; names every problem.
    """
    if problems := tuple(policy_problems(resource, settings)):
        raise InvalidResourceError(problems)


def policy_problems(resource: PDInference, settings: RenderSettings) -> Iterator[Problem]:
    """What the installation does not allow, or is not made for."""
    allowed_host_paths, spec = settings.allowed_host_paths, resource.spec
    if spec.metrics_source == "KEDA" and settings.keda is None:
        yield Problem(
            "spec.autoscaling.source",
            "The operator is not installed to use KEDA. Use something else, or ask who installed it to set the chart's "
            "autoscaling.keda.enabled and autoscaling.keda.prometheus.",
        )
    yield from _field_problems(resource, allowed_host_paths)
    yield from _overlay_problems("spec.parameter.podTemplate", spec.parameter.pod_template, allowed_host_paths)
    yield from _overlay_problems("spec.decode.podTemplate", spec.decode.pod_template, allowed_host_paths)
    yield from _overlay_problems("spec.router.podTemplate", spec.router.pod_template, allowed_host_paths)
    yield from own_volume_problems("spec.router.podTemplate", spec.router.pod_template)


def _field_problems(resource: PDInference, allowed: tuple[str, ...]) -> Iterator[Problem]:
    model = resource.spec.model
    if (source := model.source.host_path) is not None:
        yield from _host_path_problems("spec.model.source.hostPath.path", source.path, allowed)
    if model.cache is not None and (folder := model.cache.host_path) is not None:
        yield from _host_path_problems("spec.model.cache.hostPath.path", folder.path, allowed)
    for role in names.ENGINE_ROLES:
        tiers = resource.spec.of(role).kv_tiers
        if tiers and tiers.disk and tiers.disk.host_path:
            yield from _host_path_problems(f"spec.{role}.kvTiers.disk.hostPath", tiers.disk.host_path, allowed)


def _host_path_problems(field: str, path: object, allowed: tuple[str, ...]) -> Iterator[Problem]:
    wanted = PurePosixPath(str(path))
    if ".." in wanted.parts or not any(wanted.is_relative_to(folder) for folder in allowed):
        yield Problem(
            field,
            f"The operator is not installed to mount {path} (allowed: {', '.join(allowed) or 'none'}). Use something "
            "else, or ask who installed it to add the folder to the chart's allowedHostPaths.",
        )


def _overlay_problems(field: str, overlay: Json, allowed: tuple[str, ...]) -> Iterator[Problem]:
    if where := _null_within(overlay, field):
        yield Problem(where, "null would remove what the operator sets; leave it out.")
    yield from _unknown(field, overlay, _TEMPLATE_MEMBERS)
    yield from _no_maps(field, overlay, _TEMPLATE_MEMBERS)
    metadata, spec = _map(overlay.get("metadata")), _map(overlay.get("spec"))
    yield from _no_maps(f"{field}.metadata", metadata, _METADATA_MEMBERS)
    yield from _unknown(f"{field}.metadata", metadata, _METADATA_MEMBERS)
    for label in _map(metadata.get("labels")):
        if label.startswith(_RESERVED_LABELS):
            yield Problem(f"{field}.metadata.labels", f"{label} is the operator's: selectors depend on it.")
    yield from _pod_problems(f"{field}.spec", spec, allowed)


def _pod_problems(field: str, spec: Json, allowed: tuple[str, ...]) -> Iterator[Problem]:
    yield from _refused(field, spec, _REFUSED_IN_POD)
    yield from _security_problems(f"{field}.securityContext", _map(spec.get("securityContext")))
    for volume in _list(spec.get("volumes")):
        if "hostPath" in volume:
            path = _map(volume["hostPath"]).get("path", "/")
            yield from _host_path_problems(f"{field}.volumes[{volume.get('name')}].hostPath.path", path, allowed)
    if any(claim.get("name") == names.DEVICE_CLAIM for claim in _list(spec.get("resourceClaims"))):
        yield Problem(
            f"{field}.resourceClaims[{names.DEVICE_CLAIM}]", "The operator claims these; use accelerator.devices."
        )
    for kind in ("initContainers", "containers"):
        for container in _list(spec.get(kind)):
            yield from _container_problems(f"{field}.{kind}[{container.get('name')}]", container)


def _container_problems(field: str, container: Json) -> Iterator[Problem]:
    if container.get("name") in _OWN_CONTAINERS:
        yield from _refused(field, container, _REFUSED_IN_OWN_CONTAINER)
        owned = {entry.get("name") for entry in _list(container.get("env"))} & _OWNED_VARIABLES
        for name in sorted(map(str, owned)):
            yield Problem(f"{field}.env[{name}]", "The operator sets or refuses this variable.")
    for port in _list(container.get("ports")):
        if port.get("hostPort"):
            yield Problem(f"{field}.ports", "hostPort would take a port of the node; use a Service.")
    yield from _security_problems(f"{field}.securityContext", _map(container.get("securityContext")))


def _security_problems(field: str, context: Json) -> Iterator[Problem]:
    checks: dict[str, Callable[[Any], bool]] = {
        "privileged": bool,
        "allowPrivilegeEscalation": bool,
        "runAsNonRoot": lambda value: value is False,
        "runAsUser": lambda value: value == 0,
        "procMount": lambda value: value != "Default",
        "sysctls": bool,
        "windowsOptions": bool,
        "seccompProfile": lambda value: _map(value).get("type") == "Unconfined",
        "appArmorProfile": lambda value: _map(value).get("type") == "Unconfined",
        "seLinuxOptions": bool,
    }
    for member, breaks_out in checks.items():
        if member in context and breaks_out(context[member]):
            yield Problem(f"{field}.{member}", "This would let the container reach out of the pod.")
    added = set(_map(context.get("capabilities")).get("add") or ())
    if beyond := sorted(map(str, added - _ALLOWED_CAPABILITIES)):
        yield Problem(f"{field}.capabilities.add", f"{', '.join(beyond)}: only IPC_LOCK, for RDMA, may be added.")


def _refused(field: str, given: Json, refused: Mapping[str, str]) -> Iterator[Problem]:
    for member, why in refused.items():
        if member in given:
            yield Problem(f"{field}.{member}", f"This cannot be overlaid: {why}.")


def _unknown(field: str, given: Json, known: frozenset[str]) -> Iterator[Problem]:
    for member in given.keys() - known:
        yield Problem(f"{field}.{member}", f"An overlay has {' and '.join(sorted(known))} only.")


def _no_maps(field: str, given: Json, members: frozenset[str]) -> Iterator[Problem]:
    for member in sorted(given.keys() & members):
        if not isinstance(given[member], Mapping | None):
            yield Problem(f"{field}.{member}", "Write an object.")


def _null_within(value: Any, field: str) -> str:
    """Path of the first null; empty where there is none."""
    if value is None:
        return field
    if isinstance(value, Mapping):
        inner = (_null_within(member, f"{field}.{name}") for name, member in value.items())
    elif isinstance(value, list):
        inner = (_null_within(member, f"{field}[{index}]") for index, member in enumerate(value))
    else:
        return ""
    return next(filter(None, inner), "")


def _map(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
