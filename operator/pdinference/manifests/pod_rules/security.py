"""Security contexts: as strict as the restricted Pod Security Standard, and no group or user 0.

Tests: tests/manifests/test_pod_rules.py
"""

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

_OUT = "Other values would weaken the isolation of the container."
_NOT_ROOT = whole(1, 2**31 - 1, why="Use a number greater than 0: 0 is root.")
_CAPABILITY = listed("capabilities", "the capability")
_SECCOMP = object_of({"type": only("RuntimeDefault", why=_OUT)}, required=("type",))
_REFUSED = {
    "sysctls": "pods may not change sysctls",
    "seLinuxOptions": "the node sets the SELinux context",
    "seLinuxChangePolicy": "the node sets the SELinux context",
    "windowsOptions": "pods run on Linux",
}


def _drops_all(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    if not isinstance(value, list) or "ALL" not in value or not all(isinstance(item, str) for item in value):
        yield Problem(path, "Each container must drop all capabilities. Write [ALL], or remove drop.")


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
