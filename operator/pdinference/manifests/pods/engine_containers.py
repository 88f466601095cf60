"""The vLLM containers of a pod: one; or, with the path HostLocal, one for each engine, or one with a launcher.

Tests: tests/manifests/test_host_local.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pdinference.api.engines import Slot, slots
from pdinference.api.names import (
    ENGINE_CONTAINER,
    ENGINE_PORT,
    ENGINE_PORT_NAME,
    LAUNCHER_PORT,
    LAUNCHER_PORT_NAME,
    Role,
)
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import PDInference, Spec, defaults
from pdinference.engine.command import Command
from pdinference.engine.connectors.connector import Port
from pdinference.engine.connectors.registry import connector_of
from pdinference.engine.host_local import launcher_command
from pdinference.engine.vllm import engine_command
from pdinference.manifests.pods.placement import as_api, container_resources, with_devices

Fields = dict[str, Any]


@dataclass(frozen=True)
class Probes:
    """What the kubelet asks a container.

    Attributes:
        port: Name of the port.
    """

    port: str
    startup: str = "/health"
    readiness: str = "/health"
    liveness: str = "/health"


@dataclass(frozen=True)
class EngineContainer:
    """A container that runs vLLM.

    Attributes:
        ports: Its ports; none on a further node.
        probes: Its probes; None on a further node, which restarts together with the first node.
    """

    name: str
    command: Command
    resources: Fields
    ports: tuple[Port, ...] = ()
    probes: Probes | None = field(default=None)


def engine_containers(resource: PDInference, role: Role, node_rank: int) -> list[EngineContainer]:
    """The vLLM containers of the pods of a role, on one node of an instance."""
    spec = resource.spec
    if (shared := spec.host_local) is None:
        return [_only(resource, role, node_rank)]
    engines = [(slot, engine_command(resource, slot.role, slot=slot)) for slot in slots(shared)]
    if has_container_per_engine(spec):
        return [_own_container(resource, slot, command) for slot, command in engines]
    return [_launcher(resource, engines)]


def has_container_per_engine(spec: Spec) -> bool:
    """Whether each engine has a container of its own. A device plug-in gives devices to one container only."""
    own = spec.of(Role.DECODE).accelerator
    return spec.host_local is not None and (own.type == "CPU" or own.devices is not None)


def _only(resource: PDInference, role: Role, node_rank: int) -> EngineContainer:
    spec = resource.spec.of(role, node_rank)
    serves = node_rank == 0
    ports = (Port(ENGINE_PORT_NAME, ENGINE_PORT), *connector_of(resource.spec).ports(role))
    return EngineContainer(
        ENGINE_CONTAINER,
        engine_command(resource, role, node_rank),
        container_resources(spec, resource.spec.rdma),
        ports if serves else (),
        Probes(ENGINE_PORT_NAME) if serves else None,
    )


def _own_container(resource: PDInference, slot: Slot, command: Command) -> EngineContainer:
    resources = container_resources(resource.spec.of(slot.role), None)
    return EngineContainer(slot.name, command, resources, _ports(resource, slot), Probes(slot.name))


def _launcher(resource: PDInference, engines: list[tuple[Slot, Command]]) -> EngineContainer:
    """One container with the resources of all engines."""
    spec = resource.spec
    amounts = _sum([as_api(spec.of(slot.role).resources) for slot, _ in engines])
    return EngineContainer(
        ENGINE_CONTAINER,
        launcher_command(engines, defaults.startup_seconds(spec)),
        with_devices(amounts, spec.of(Role.DECODE), None, spec.devices_per_pod(Role.DECODE)),
        (*(port for slot, _ in engines for port in _ports(resource, slot)), Port(LAUNCHER_PORT_NAME, LAUNCHER_PORT)),
        Probes(LAUNCHER_PORT_NAME, "/startup", "/readiness", "/liveness"),
    )


def _ports(resource: PDInference, slot: Slot) -> tuple[Port, ...]:
    return (Port(slot.name, slot.port), *connector_of(resource.spec).ports(slot.role, slot))


def _sum(resources: list[Fields]) -> Fields:
    """Requests and limits of all together. A resource has a limit only if each engine has one."""
    requests = [each.get("requests", {}) for each in resources]
    limits = [each.get("limits", {}) for each in resources]
    bounded = set.intersection(*(set(each) for each in limits))
    found = {
        "requests": _total(requests, {name for each in requests for name in each}),
        "limits": _total(limits, bounded),
    }
    return {kind: amounts for kind, amounts in found.items() if amounts}


def _total(amounts: list[Mapping[str, str]], wanted: Iterable[str]) -> dict[str, str]:
    return {
        name: _as_text(sum(quantity(each.get(name, 0)) or Decimal() for each in amounts)) for name in sorted(wanted)
    }


def _as_text(amount: Decimal | int) -> str:
    """A quantity: whole, in the largest binary unit that divides it, or in thousandths."""
    if amount % 1:
        return f"{int(amount * 1000)}m"
    for suffix, power in (("Gi", 30), ("Mi", 20)):
        if amount and amount % (1 << power) == 0:
            return f"{int(amount) >> power}{suffix}"
    return str(int(amount))
