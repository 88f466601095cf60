"""Security contexts: as strict as the restricted Pod Security Standard, and no group or user 0."""

from collections.abc import Iterator
from typing import Any

from pdinference.api.validation import Problem
from pdinference.manifests.pod_rules.shapes import (
    Allowance,
    Check,
    flag,
    list_of,
    listed,
    object_of,
    only,
    whole,
)

_OUT = "Anything else would let the container reach out of the pod."
_NOT_ROOT = whole(1, 2**31 - 1, why="Write a number from 1 on: 0 is root.")
_CAPABILITY = listed("capabilities", "the capability")
_SECCOMP = object_of({"type": only("RuntimeDefault", why=_OUT)}, required=("type",))
_REFUSED = {
    "sysctls": "sysctls belong to the node",
    "seLinuxOptions": "the node decides",
    "seLinuxChangePolicy": "the node decides",
    "windowsOptions": "pods run on Linux",
}


def _drops_all(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    if not isinstance(value, list) or "ALL" not in value or not all(isinstance(item, str) for item in value):
        yield Problem(path, "Write [ALL], or leave it out: each container drops all capabilities.")


_USER: dict[str, Check] = {
    "runAsNonRoot": only(True, why=_OUT),
    "runAsUser": _NOT_ROOT,
    "runAsGroup": _NOT_ROOT,
    "seccompProfile": _SECCOMP,
    "appArmorProfile": _SECCOMP,
}
POD_SECURITY: Check = object_of(
    {
        **_USER,
        "fsGroup": _NOT_ROOT,
        "fsGroupChangePolicy": only("OnRootMismatch", "Always"),
        "supplementalGroups": list_of(_NOT_ROOT, most=32),
        "supplementalGroupsPolicy": only("Merge", "Strict"),
    },
    _REFUSED,
)
CONTAINER_SECURITY: Check = object_of(
    {
        **_USER,
        "allowPrivilegeEscalation": only(False, why=_OUT),
        "privileged": only(False, why=_OUT),
        "readOnlyRootFilesystem": flag,
        "procMount": only("Default", why=_OUT),
        "capabilities": object_of({"drop": _drops_all, "add": list_of(_CAPABILITY, most=16)}),
    },
    _REFUSED,
)
