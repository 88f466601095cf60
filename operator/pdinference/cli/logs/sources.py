"""Which containers have the log of a role.

Tests: tests/cli/test_logs.py
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pdinference.api import names
from pdinference.api.engines import engines_of
from pdinference.api.names import Role

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class LogSource:
    """A container. Its runs differ in `restarts`."""

    pod: str
    container: str
    restarts: int = 0


def sources(pods: Sequence[Json], role: Role, revision: str, container: str = "") -> list[LogSource]:
    """The containers with the log of a role, by pod.

    Args:
        pods: Pods of the resource.
        role: The role. P in the pods of D (HostLocal) has containers there.
        revision: Revision of the pods.
        container: Another container of these pods; empty for that of the role.
    """
    found = {
        LogSource(pod["metadata"]["name"], name, _restarts(pod, name))
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(names.LABEL_REVISION) == revision
        for name in _of_role(pod, role, container)
    }
    return sorted(found)


def _of_role(pod: Json, role: Role, container: str) -> Iterator[str]:
    node = names.node_of(pod["metadata"]["labels"])
    if node is None:
        return
    own, rank = node
    if own is Role.ROUTER:
        containers = [names.ROUTER_CONTAINER] if role is Role.ROUTER else []
    elif own not in names.ENGINE_ROLES:
        containers = []
    elif rank:
        containers = [names.ENGINE_CONTAINER] if role is own else []
    else:
        containers = [engine.container for engine in engines_of(pod) if engine.role is role]
    yield from [container] if container and containers else containers


def _restarts(pod: Json, container: str) -> int:
    status = pod.get("status") or {}
    states = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return next((int(one.get("restartCount", 0)) for one in states if one.get("name") == container), 0)
