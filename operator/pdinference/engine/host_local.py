"""Engines that share a pod (the path HostLocal): their environment, and the launcher of several in one container.

Tests: tests/manifests/test_host_local.py, tests/engine/scripts/test_host_engines.py
"""

from collections.abc import Iterator, Sequence
from typing import Final

from pdinference.api.engines import Slot, slots
from pdinference.api.names import ENGINE_ROLES, LAUNCHER_PORT, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.engine import lifecycle
from pdinference.engine.command import Command, EnvironmentVariable, script_program, variable

Engines = Sequence[tuple[Slot, Command]]
_LAUNCHER: Final = "host_engines"


def slot_environment(spec: Spec, slot: Slot, cache_folder: str) -> list[EnvironmentVariable]:
    """Variables that keep an engine apart from the others of its pod."""
    return [
        # Two vLLMs that compile at the same time would write the same files. Downloads stay common.
        variable("VLLM_CACHE_ROOT", f"{cache_folder}/{slot.name}"),
        *_device_environment(spec, slot),
    ]


def devices_of_first(spec: Spec) -> dict[Role, dict[str, str]]:
    """Variables that choose the devices of the first engine of each role. Empty unless engines share pods."""
    if spec.host_local is None:
        return {}
    first = {role: next(slot for slot in slots(spec.host_local) if slot.role is role) for role in ENGINE_ROLES}
    return {
        role: {each["name"]: each["value"] for each in _device_environment(spec, slot)} for role, slot in first.items()
    }


def _device_environment(spec: Spec, slot: Slot) -> Iterator[EnvironmentVariable]:
    """The engine's own part of the pod's devices, all of which each container sees."""
    if spec.of(slot.role).accelerator.type == "CPU" or spec.host_local is None:
        return
    earlier = (spec.of(other.role).parallelism.devices for other in slots(spec.host_local) if other.index < slot.index)
    first = sum(earlier)
    devices = range(first, first + spec.of(slot.role).parallelism.devices)
    # Otherwise CUDA numbers the fastest device first, and the order could differ between engines.
    yield variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    yield variable("CUDA_VISIBLE_DEVICES", ",".join(map(str, devices)))


def launcher_command(engines: Engines, startup_seconds: int) -> Command:
    """The command that runs all engines of a pod in one container (engine/scripts/host_engines.py).

    Each engine's words follow their number, so that no word has to be escaped.
    """
    common = _common(engines)
    numbers = (
        LAUNCHER_PORT,
        startup_seconds,
        lifecycle.LIVENESS_PERIOD_SECONDS,
        lifecycle.PROBE_TIMEOUT_SECONDS,
        lifecycle.LIVENESS_FAILURES,
    )
    return Command(
        program=(*script_program(_LAUNCHER), *map(str, numbers)),
        arguments=tuple(word for slot, command in engines for word in _words(slot, command, common)),
        environment=tuple(common),
        scripts=(_LAUNCHER, *dict.fromkeys(name for _, command in engines for name in command.scripts)),
    )


def _words(slot: Slot, command: Command, common: list[EnvironmentVariable]) -> Iterator[str]:
    own = [f"{entry['name']}={entry['value']}" for entry in command.environment if entry not in common]
    words = (*command.program, *command.arguments)
    yield from (slot.name, str(slot.port), str(len(own)), *own, str(len(words)), *words)


def _common(engines: Engines) -> list[EnvironmentVariable]:
    """Variables with the same value in all engines, among them all whose value only the kubelet knows."""
    environments = [command.environment for _, command in engines]
    return [entry for entry in environments[0] if all(entry in other for other in environments)]
