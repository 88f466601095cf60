"""Containers of an overlay: changes to the operator's containers, and sidecars.

Tests: tests/manifests/test_pod_rules.py
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.engines import runs_engines
from pdinference.api.validation import Problem
from pdinference.manifests.hub_access import replaces_system
from pdinference.manifests.pod_rules.environment import (
    ENGINE_ENVIRONMENT,
    ENVIRONMENT,
    ENVIRONMENT_FROM,
    HELPER_ENVIRONMENT,
    refers_to_secret,
)
from pdinference.manifests.pod_rules.probes import LIFECYCLE, PORT_NAME, PROBE
from pdinference.manifests.pod_rules.security import CONTAINER_SECURITY
from pdinference.manifests.pod_rules.shapes import (
    Allowance,
    Check,
    amount,
    both,
    flag,
    list_of,
    map_of,
    object_of,
    only,
    qualified_name,
    text,
    whole,
)
from pdinference.manifests.pod_rules.volumes import VOLUME_NAME

_OWNED = {
    "command": "the operator sets it",
    "args": "use the args field of the role or of spec.engine",
    "image": "use spec.engine.image or spec.router.image",
    "lifecycle": "the operator drains requests before it stops pods; use spec.rollout.drainSeconds",
    "ports": "Services and NetworkPolicies depend on the ports",
    "restartPolicy": "the operator sets it",
}
_RESERVED = {
    "volumeDevices": "containers may not use block devices",
    "stdin": "containers run without a terminal",
    "tty": "containers run without a terminal",
    "resizePolicy": "the operator replaces pods to resize them",
}
_SHIELDED = {
    **_OWNED,
    **_RESERVED,
    "envFrom": "the container has permissions that the author of the resource may lack",
    "volumeMounts": "the container has permissions that the author of the resource may lack",
    "readinessProbe": "the operator sets it",
    "livenessProbe": "the operator sets it",
    "startupProbe": "the operator sets it",
    "workingDir": "the operator sets it",
}
_AMOUNTS = map_of(qualified_name, amount, most=16)
_BELOW = r"(?s)(?!(.*/)?\.\.(/|$))[^/].*"
"""A path below a folder."""
_MOUNT = object_of(
    {
        "name": VOLUME_NAME,
        "mountPath": text(r"[^:]+", "/adapters"),
        "readOnly": flag,
        "recursiveReadOnly": only("Disabled", "IfPossible", "Enabled"),
        "subPath": text(_BELOW, "llama"),
        "subPathExpr": text(_BELOW, "$(POD_NAME)"),
    },
    {"mountPropagation": "mounts must stay within the pod"},
    required=("mountPath",),
)
_CLAIM = object_of({"name": VOLUME_NAME, "request": VOLUME_NAME}, required=("name",))
_PORT = object_of(
    {
        "name": PORT_NAME,
        "containerPort": whole(1, 65535),
        "protocol": only("TCP", "UDP", "SCTP"),
    },
    {"hostPort": "it would take a port of the node; use a Service", "hostIP": "use a Service"},
    required=("containerPort",),
)
_RESOURCES = object_of({"requests": _AMOUNTS, "limits": _AMOUNTS, "claims": list_of(_CLAIM, most=32)})
_EVERYWHERE: dict[str, Check] = {
    "name": VOLUME_NAME,
    "resources": _RESOURCES,
    "securityContext": CONTAINER_SECURITY,
    "imagePullPolicy": only("Always", "IfNotPresent", "Never"),
    "terminationMessagePath": text(),
    "terminationMessagePolicy": only("File", "FallbackToLogsOnError"),
}
_OF_USERS: dict[str, Check] = {
    **_EVERYWHERE,
    "workingDir": text(),
    "volumeMounts": list_of(_MOUNT, key="mountPath"),
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
}


def _not_requested(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """Resources of the vLLM container. A request of 0 devices could give it all devices of the node."""
    for kind in ("requests", "limits"):
        for name in sorted(allowance.requested.intersection(value.get(kind, ()))):
            yield Problem(
                f"{path}.{kind}.{name}",
                "The operator requests this resource. Remove it here; set the number of devices with parallelism of "
                "the role, and the number of RDMA devices with transfer.rdma.count.",
            )


def _names_no_secret(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """A mount of the vLLM container. The kubelet would create a folder with the name of the secret."""
    if allowance.secret and refers_to_secret(value.get("subPathExpr", "")):
        yield Problem(f"{path}.subPathExpr", f"It would write what {allowance.secret} names to a volume. Remove it.")


def _starts_where_the_image_says(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """The folder in which vLLM starts. Python takes modules from there first."""
    if allowance.secret and "workingDir" in value:
        yield Problem(
            f"{path}.workingDir",
            f"Beside {allowance.secret}, vLLM starts in the folder of the image: code from a volume could run in the "
            "process that has the secret. Remove workingDir.",
        )


def _keeps_the_system(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """A mount of the vLLM container. Files of a volume in place of the image's have the effect of a variable."""
    if allowance.secret and replaces_system(value["mountPath"]):
        yield Problem(
            f"{path}.mountPath",
            f"Beside {allowance.secret}, no volume may hide the programs, libraries, certificates and resolver "
            "settings of the image. Use another path, for example /data.",
        )


_ENGINE = object_of(
    {
        **_OF_USERS,
        "resources": both(_RESOURCES, _not_requested),
        "env": ENGINE_ENVIRONMENT,
        "volumeMounts": list_of(both(both(_MOUNT, _keeps_the_system), _names_no_secret), key="mountPath"),
        "envFrom": ENVIRONMENT_FROM,
    },
    _OWNED | _RESERVED,
    required=("name",),
)
_HELPER = object_of({**_EVERYWHERE, "env": HELPER_ENVIRONMENT}, _SHIELDED, required=("name",))
"""A container that has a token for the API server, or writes files that other resources read."""
_OWN_CONTAINERS = {names.ENGINE_CONTAINER: both(_ENGINE, _starts_where_the_image_says), names.ROUTER_CONTAINER: _HELPER}
_OWN_INIT_CONTAINERS = {names.MODEL_CONTAINER: _HELPER, names.DISK_TIER_CONTAINER: _HELPER}
_SIDE_CAR: dict[str, Check] = {
    **_OF_USERS,
    "image": text(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", "registry.example/side-car:1", most=512),
    "command": list_of(text(most=65536)),
    "args": list_of(text(most=65536)),
    "env": ENVIRONMENT,
    "envFrom": ENVIRONMENT_FROM,
    "ports": list_of(_PORT),
    "lifecycle": LIFECYCLE,
}


def _reads_no_secret(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """A sidecar, or an init container that runs on beside vLLM."""
    ends = ".initContainers[" in path and "restartPolicy" not in value
    if allowance.shares_processes and allowance.secret and not ends:
        yield Problem(
            path,
            f"With the path HostLocal, this container could read what {allowance.secret} names from the processes of "
            "vLLM. Remove it, or use the path Network.",
        )


_CONTAINER = both(object_of(_SIDE_CAR, _RESERVED, required=("name", "image")), _reads_no_secret)
_INIT_CONTAINER = both(
    object_of({**_SIDE_CAR, "restartPolicy": only("Always")}, _RESERVED, required=("name", "image")), _reads_no_secret
)


def container(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """A sidecar, or a change to a container of the operator."""
    yield from _by_name(value, _OWN_CONTAINERS, _CONTAINER)(value, path, allowance)


def init_container(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """An init container, or a sidecar if it has `restartPolicy: Always`."""
    yield from _by_name(value, _OWN_INIT_CONTAINERS, _INIT_CONTAINER)(value, path, allowance)


def _by_name(value: Any, own: Mapping[str, Check], otherwise: Check) -> Check:
    name = value.get("name") if isinstance(value, Mapping) else None
    if not isinstance(name, str):
        return otherwise
    if name in own:
        return own[name]
    taken = name in _OWN_CONTAINERS or name in _OWN_INIT_CONTAINERS or runs_engines(name)
    return _taken if taken else otherwise


def _taken(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    yield Problem(f"{path}.name", f"The operator uses {value['name']} for another container. Use another name.")
