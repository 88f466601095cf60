"""The tables of an overlay's members and of its pod spec.

Tests: tests/manifests/test_pod_rules.py
"""

import ipaddress
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pdinference.api import names
from pdinference.api.validation import Problem
from pdinference.manifests.hub_access import is_hub
from pdinference.manifests.pod_rules.containers import container, init_container
from pdinference.manifests.pod_rules.metadata import METADATA
from pdinference.manifests.pod_rules.scheduling import (
    AFFINITY,
    NODE_SELECTOR,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    SCHEDULER_NAME,
    TOPOLOGY_SPREAD,
    toleration,
)
from pdinference.manifests.pod_rules.security import POD_SECURITY
from pdinference.manifests.pod_rules.shapes import (
    DOMAIN,
    Allowance,
    Check,
    both,
    deeper_than,
    list_of,
    not_beside_token,
    object_of,
    only,
    qualified_name,
    shown,
    text,
)
from pdinference.manifests.pod_rules.volumes import OBJECT_NAME, VOLUME_NAME, volume

_MOST = 50
"""Maximum number of reported problems of one overlay."""
_DEEPEST = 32
_ACCOUNT = "the operator sets the service account of pods"
_REFUSED = {
    "hostNetwork": "pods may not use the network of the node",
    "hostPID": "pods may not use the PID namespace of the node",
    "hostIPC": "pods may not use the IPC namespace of the node",
    "serviceAccount": _ACCOUNT,
    "serviceAccountName": _ACCOUNT,
    "automountServiceAccountToken": "vLLM does not need access to the API server",
    "nodeName": "the scheduler selects the node; use placement",
    "ephemeralContainers": "use kubectl debug",
    "restartPolicy": "pods of a Deployment and a StatefulSet always restart",
    "terminationGracePeriodSeconds": "use spec.rollout.drainSeconds",
    "enableServiceLinks": "a Service named vllm would set variables of vLLM",
    "shareProcessNamespace": "sidecars could read the variables of the operator's containers, including tokens",
    "subdomain": "the operator sets it",
    "hostname": "the operator sets it",
    "activeDeadlineSeconds": "pods serve until they are replaced",
    "priority": "use priorityClassName",
    "preemptionPolicy": "use priorityClassName",
    "overhead": "the RuntimeClass defines it",
}


def _alias(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    if allowance.has_token and any(is_hub(host, allowance.policy) for host in value.get("hostnames", ())):
        yield Problem(path, "vLLM would send the token of tokenSecret to this address. Remove the name of the hub.")


_nameservers = not_beside_token(
    "With tokenSecret, the name servers of the cluster must resolve the hub. Remove nameservers.",
)
_searches = not_beside_token(
    "With tokenSecret, the name of the hub could resolve within these domains. Remove searches; the search domains of "
    "the cluster remain."
)


def _own_claim(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    if value["name"] == names.DEVICE_CLAIM:
        yield Problem(path, "The operator uses this claim. Use another name, or configure accelerator.devices.")


def _address(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    try:
        ipaddress.ip_address(value if isinstance(value, str) and "%" not in value else "")
    except ValueError:
        yield Problem(path, f"{shown(value)} is not an address. Write for example 10.0.0.10.")


_DNS = object_of(
    {
        "nameservers": both(list_of(_address, most=3), _nameservers),
        "searches": both(list_of(DOMAIN, most=8), _searches),
        "options": list_of(
            object_of({"name": text(r"\S+", "ndots", most=63), "value": text(most=63)}, required=("name",)), most=16
        ),
    }
)
_ALIAS = object_of({"ip": _address, "hostnames": list_of(DOMAIN, most=64)}, required=("ip",))
_CLAIM = object_of(
    {"name": VOLUME_NAME, "resourceClaimName": OBJECT_NAME, "resourceClaimTemplateName": OBJECT_NAME},
    required=("name",),
)
_READINESS_GATE = object_of({"conditionType": qualified_name}, required=("conditionType",))
_SCHEDULING_GATE = object_of({"name": qualified_name}, required=("name",))
_SPEC: dict[str, Check] = {
    "containers": list_of(container, most=32),
    "initContainers": list_of(init_container, most=32),
    "volumes": list_of(volume),
    "imagePullSecrets": list_of(object_of({"name": OBJECT_NAME}, required=("name",)), most=16),
    "securityContext": POD_SECURITY,
    "nodeSelector": NODE_SELECTOR,
    "affinity": AFFINITY,
    "tolerations": list_of(toleration, key="key", most=64),
    "topologySpreadConstraints": TOPOLOGY_SPREAD,
    "priorityClassName": PRIORITY_CLASS,
    "runtimeClassName": RUNTIME_CLASS,
    "schedulerName": SCHEDULER_NAME,
    "schedulingGates": list_of(_SCHEDULING_GATE, most=8),
    "readinessGates": list_of(_READINESS_GATE, key="conditionType", most=8),
    "resourceClaims": list_of(both(_CLAIM, _own_claim), most=32),
    "hostAliases": list_of(both(_ALIAS, _alias), key="ip", most=64),
    "dnsPolicy": only("ClusterFirst", "Default", "None"),
    "dnsConfig": _DNS,
    "hostUsers": only(False),
}
_TEMPLATE = object_of({"metadata": METADATA, "spec": object_of(_SPEC, _REFUSED)})


def overlay_problems(field: str, overlay: Mapping[str, Any], allowance: Allowance) -> Iterator[Problem]:
    """Members of an overlay that are not allowed.

    Args:
        field: Path of the overlay in the resource.
        overlay: The overlay, untrusted.
        allowance: Permissions of the overlay.
    """
    if deeper_than(overlay, _DEEPEST):
        yield Problem(field, f"podTemplate is nested too deeply. Use at most {_DEEPEST} levels of objects and lists.")
    elif where := _first_null(overlay, field):
        yield Problem(where, "null would remove a value of the operator. Remove the field.")
    else:
        yield from islice(_TEMPLATE(overlay, field, allowance), _MOST)


def _first_null(overlay: Mapping[str, Any], field: str) -> str:
    """Path of the first null; empty if there is none."""
    return _path_to_null(overlay, field) if _holds_null(overlay) else ""


def _holds_null(overlay: Mapping[str, Any]) -> bool:
    waiting: list[Any] = [overlay]
    while waiting:
        holder = waiting.pop()
        for member in holder.values() if isinstance(holder, Mapping) else holder:
            if member is None:
                return True
            if isinstance(member, Mapping | list):
                waiting.append(member)
    return False


def _path_to_null(value: Any, path: str) -> str:
    if value is None:
        return path
    if isinstance(value, Mapping):
        inner = (_path_to_null(member, f"{path}.{shown(name)}") for name, member in value.items())
    elif isinstance(value, list):
        inner = (_path_to_null(member, f"{path}[{index}]") for index, member in enumerate(value))
    else:
        return ""
    return next(filter(None, inner), "")
