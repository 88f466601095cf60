"""The engines of a pod: role, port and container of each vLLM, from the pod's ports.

An ordinary pod has one engine. A pod of the path HostLocal has several of both roles, and names their ports after
them: `parameter-0`, `decode-0`, `decode-1`. They have a container each, or share one with a launcher.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pdinference.api.names import ENGINE_CONTAINER, ENGINE_PORT, ENGINE_PORT_NAME, ENGINE_ROLES, LABEL_ROLE, Role
from pdinference.api.v1alpha1.transfer import MOST_INSTANCES, HostLocal

Json = Mapping[str, Any]

LAST_ENGINE_PORT: Final = ENGINE_PORT + len(ENGINE_ROLES) * MOST_INSTANCES - 1
"""Highest port of vLLM's API in a pod with as many engines as there may be."""

_SLOT: Final = re.compile(rf"({'|'.join(ENGINE_ROLES)})-[0-9]")


@dataclass(frozen=True, slots=True)
class Slot:
    """Place of one engine in a pod of the path HostLocal.

    Attributes:
        role: Role of the engine.
        index: Its number among all engines of the pod, D first.
        name: Name of its port and, if it has one of its own, of its container.
    """

    role: Role
    index: int
    name: str

    @property
    def port(self) -> int:
        """Port of its API. The first D has the port that an ordinary engine has."""
        return ENGINE_PORT + self.index


def runs_engines(container: str) -> bool:
    """Whether a container of this name runs vLLM. Sidecars cannot have such a name."""
    return container == ENGINE_CONTAINER or _SLOT.fullmatch(container) is not None


def slots(host_local: HostLocal) -> tuple[Slot, ...]:
    """The engines of each pod."""
    placed = [(role, number) for role in reversed(ENGINE_ROLES) for number in range(host_local.of(role))]
    return tuple(Slot(role, index, f"{role}-{number}") for index, (role, number) in enumerate(placed))


@dataclass(frozen=True, slots=True)
class PodEngine:
    """An engine of a pod as the API server has it.

    Attributes:
        role: Role of the engine.
        port_name: Name of its port, which is unique in the pod.
        port: Port of its API.
        container: Container that it runs in.
        ready: Whether it is ready as far as Kubernetes knows: its pod if it is the only engine, else its container.
            Engines that share a container have one state. None is ready on a node that is not reachable.
        restarts: How often its container has been started again.
    """

    role: Role
    port_name: str
    port: int
    container: str
    ready: bool
    restarts: int = 0

    @property
    def shares_pod(self) -> bool:
        """Whether its pod is one of the path HostLocal."""
        return self.port_name != ENGINE_PORT_NAME


def engines_of(pod: Json) -> tuple[PodEngine, ...]:
    """The engines of a pod of P or D. Their number is bounded, whatever the pod contains."""
    return _several(pod) or (_only(pod),)


def _several(pod: Json) -> tuple[PodEngine, ...]:
    ready = set() if _is_out_of_reach(pod) else {status["name"] for status in _containers(pod) if status.get("ready")}
    restarts = _restarts(pod)
    found: dict[str, PodEngine] = {}
    for container, port in _ports(pod):
        name = port.get("name") or ""
        # Kubernetes lets two containers give the same name to a port. Ours do not.
        if runs_engines(container) and name not in found and (match := _SLOT.fullmatch(name)):
            found[name] = PodEngine(
                Role(match[1]),
                name,
                int(port["containerPort"]),
                container,
                ready=container in ready,
                restarts=restarts.get(container, 0),
            )
    return tuple(found.values())


def _only(pod: Json) -> PodEngine:
    ports = (
        int(port["containerPort"])
        for container, port in _ports(pod)
        if container == ENGINE_CONTAINER and port.get("name") == ENGINE_PORT_NAME
    )
    return PodEngine(
        role=Role(pod["metadata"]["labels"][LABEL_ROLE]),
        port_name=ENGINE_PORT_NAME,
        port=next(ports, ENGINE_PORT),
        container=ENGINE_CONTAINER,
        ready=_conditions(pod).get("Ready") == "True",
        restarts=_restarts(pod).get(ENGINE_CONTAINER, 0),
    )


def _is_out_of_reach(pod: Json) -> bool:
    """Whether the node of a pod has stopped reporting. The control plane then changes the pod's condition alone."""
    conditions = _conditions(pod)
    return conditions.get("ContainersReady") == "True" and conditions.get("Ready") == "False"


def _conditions(pod: Json) -> dict[str, str]:
    """The status of each condition, by type."""
    return {one["type"]: one["status"] for one in (pod.get("status") or {}).get("conditions") or ()}


def _containers(pod: Json) -> tuple[Json, ...]:
    """The status of each container."""
    return tuple((pod.get("status") or {}).get("containerStatuses") or ())


def _restarts(pod: Json) -> dict[str, int]:
    """How often each container has been started again, by name."""
    return {status["name"]: int(status.get("restartCount") or 0) for status in _containers(pod)}


def _ports(pod: Json) -> Iterator[tuple[str, Json]]:
    """The ports of all containers, each with the name of its container."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            yield container.get("name", ""), port
