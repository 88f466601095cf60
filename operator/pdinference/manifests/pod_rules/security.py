"""Security contexts: as strict as the restricted Pod Security Standard, and no group or user 0 unless allowed.

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
_ANYONE = whole()
_NOT_ROOT = whole(
    1, 2**31 - 1, why="Use a number greater than 0: 0 is root. For P and D, the chart value policy.root can allow it."
)
_CAPABILITY = listed("capabilities", "the capability")
_SECCOMP = object_of({"type": only("RuntimeDefault", why=_OUT)}, required=("type",))
_REFUSED = {
    "sysctls": "pods may not change sysctls",
    "seLinuxOptions": "the node sets the SELinux context",
    "seLinuxChangePolicy": "the node sets the SELinux context",
    "windowsOptions": "pods run on Linux",
}


def _user(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """The number of a user or group."""
    yield from (_ANYONE if allowance.root else _NOT_ROOT)(value, path, allowance)


def _non_root(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    yield from (flag if allowance.root else only(True, why=_OUT))(value, path, allowance)


def _drops_all(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    if not isinstance(value, list) or "ALL" not in value or not all(isinstance(item, str) for item in value):
        yield Problem(path, "Each container must drop all capabilities. Write [ALL], or remove drop.")


_IDENTITY: dict[str, Check] = {
    "runAsNonRoot": _non_root,
    "runAsUser": _user,
    "runAsGroup": _user,
    "seccompProfile": _SECCOMP,
    "appArmorProfile": _SECCOMP,
}
POD_SECURITY: Check = object_of(
    {
        **_IDENTITY,
        "fsGroup": _user,
        "fsGroupChangePolicy": only("OnRootMismatch", "Always"),
        "supplementalGroups": list_of(_user, most=32),
        "supplementalGroupsPolicy": only("Merge", "Strict"),
    },
    _REFUSED,
)
CONTAINER_SECURITY: Check = object_of(
    {
        **_IDENTITY,
        "allowPrivilegeEscalation": only(False, why=_OUT),
        "privileged": only(False, why=_OUT),
        "readOnlyRootFilesystem": flag,
        "procMount": only("Default", why=_OUT),
        "capabilities": object_of({"drop": _drops_all, "add": list_of(_CAPABILITY, most=16)}),
    },
    _REFUSED,
)
