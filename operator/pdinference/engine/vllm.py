"""The command of a vLLM container."""

from typing import Any

from pdinference.api.engines import Slot
from pdinference.api.names import ENGINE_PORT, Role
from pdinference.api.v1alpha1 import PDInference, Spec
from pdinference.engine.arguments import to_argv
from pdinference.engine.command import Command, EnvironmentVariable, literal, variable
from pdinference.engine.compile_cache import (
    COMPILE_VARIABLES,
    compile_cache_key,
    compile_environment,
    with_compile_cache,
)
from pdinference.engine.connectors.configuration import kv_transfer_config
from pdinference.engine.connectors.registry import connector_of
from pdinference.engine.devices import device_environment
from pdinference.engine.group import GROUP_SCRIPT, group_arguments, group_environment, group_program
from pdinference.engine.host_local import slot_environment
from pdinference.engine.model_options import model_environment, model_options, model_reference
from pdinference.engine.options import default_options, engine_options, kv_cache_options, log_environment
from pdinference.engine.parallel import expert_options, parallel_environment, parallel_options
from pdinference.engine.queue import queue_options
from pdinference.engine.traces import traces_environment, traces_options

# `vllm serve`: the other entry point accepts `--api-server-count` and `--headless` without effect. The module is used
# because not every build has the `vllm` command.
_PROGRAM = ("python3", "-m", "vllm.entrypoints.cli.main", "serve")

CACHE_MOUNT = "/cache"
"""The only writable folder besides /tmp, for downloads and compiled kernels."""


_DEFAULTS: dict[str, Any] = {
    # Otherwise probes and scrapes would dominate the log.
    "disable-access-log-for-endpoints": "/health,/metrics",
}
"""Options that users may override."""

_NOT_FORKED = ("mm-tensor-ipc", "numa-bind")
"""Options with which vLLM wants a new process for the engine (config/vllm.py, utils/system_utils.py)."""


def engine_command(resource: PDInference, role: Role, node_rank: int = 0, slot: Slot | None = None) -> Command:
    """The command of a vLLM of a role, on one node of an instance, or in one slot of a pod.

    `vllm serve` wants the model before all options. The user's options come before those of the operator: vLLM's parser
    accepts abbreviations of options, and the last occurrence wins.
    """
    own, connector = resource.spec.of(role), connector_of(resource.spec)
    connector_class = connector.own_class(resource, role)
    transfer = kv_transfer_config(resource, role)
    options = {
        **_DEFAULTS,
        **default_options(resource.spec, role),
        **_chosen_options(resource.spec, role),
        **model_options(resource.spec.model),
        "served-model-name": served_model_name(resource),
        **parallel_options(own.parallelism),
        **expert_options(resource.spec, role),
        "host": "0.0.0.0",  # noqa: S104 - clients use the pod's address; a NetworkPolicy restricts them
        "port": ENGINE_PORT if slot is None else slot.port,
        **queue_options(resource.spec),
        **traces_options(resource.spec),
        "shutdown-timeout": resource.spec.rollout.drain_seconds,
        **connector.options(),
        **({"kv-transfer-config": transfer} if transfer else {}),
    }
    command = Command(
        program=connector_class.program(_PROGRAM) if connector_class else _PROGRAM,
        arguments=tuple(literal(argument) for argument in (model_reference(resource.spec.model), *to_argv(options))),
        environment=tuple(_environment(resource, role, slot)),
        scripts=connector_class.scripts if connector_class else (),
    )
    if own.parallelism.nodes > 1:
        command = _in_group(command, resource, role, node_rank)
    if resource.spec.engine.compile_cache is None:
        return command
    port = int(options["port"]) if node_rank == 0 else 0
    return with_compile_cache(command, compile_cache_key(resource.spec, role, options, node_rank, slot), port)


def _in_group(command: Command, resource: PDInference, role: Role, node_rank: int) -> Command:
    """The command for one node of a multi-node instance."""
    name, parallelism = resource.metadata.name, resource.spec.of(role).parallelism
    known = {entry["name"] for entry in command.environment}
    return Command(
        program=group_program(command.program, name, role, node_rank, parallelism.nodes),
        arguments=(*command.arguments, *group_arguments(name, role, parallelism, node_rank)),
        environment=(*command.environment, *(e for e in group_environment() if e["name"] not in known)),
        scripts=(GROUP_SCRIPT, *command.scripts),
    )


def _chosen_options(spec: Spec, role: Role) -> dict[str, Any]:
    """Options that the spec sets."""
    own = spec.of(role)
    return {
        **engine_options(spec.engine),
        **engine_options(own),
        **spec.engine.args,
        **own.args,
        **kv_cache_options(spec.engine.kv_cache),
    }


def effective_defaults(spec: Spec, role: Role) -> dict[str, Any]:
    """Options that the operator sets by default because the spec does not."""
    chosen = _chosen_options(spec, role)
    return {name: value for name, value in default_options(spec, role).items() if name not in chosen}


def served_model_name(resource: PDInference) -> str:
    """The model name in requests of clients."""
    return resource.spec.model.name or resource.metadata.name


def model_names(resource: PDInference) -> tuple[str, ...]:
    """The names in requests of clients: of the model, and of the adapters that vLLM loads at start."""
    lora = resource.spec.model.lora
    return served_model_name(resource), *(adapter.name for adapter in (lora.adapters if lora else ()))


def _environment(resource: PDInference, role: Role, slot: Slot | None) -> list[EnvironmentVariable]:
    """The environment. User variables override defaults; api/v1alpha1/engine.py rejects variables of the operator."""
    own = resource.spec.of(role)
    transfer = resource.spec.transfer if resource.spec.transfers_kv else None
    ours = [
        *_process_environment(),
        *device_environment(own, transfer),
        *_start_environment(resource.spec, role),
        *model_environment(resource.spec.model),
        *traces_environment(resource, role),
        *parallel_environment(own.parallelism),
        *log_environment(own if own.log_level else resource.spec.engine),
        *connector_of(resource.spec).environment(resource.spec.transfer, slot),
        *(slot_environment(resource.spec, slot, CACHE_MOUNT) if slot else []),
    ]
    if resource.spec.engine.compile_cache:
        compiled = compile_environment(_own_folder(slot))
        ours = [*(entry for entry in ours if entry["name"] not in COMPILE_VARIABLES), *compiled]
    theirs = {**resource.spec.engine.env, **own.env}
    return [*(entry for entry in ours if entry["name"] not in theirs), *(variable(k, v) for k, v in theirs.items())]


def _own_folder(slot: Slot | None) -> str:
    """A writable folder of one engine alone."""
    return f"{CACHE_MOUNT}/{slot.name}" if slot else CACHE_MOUNT


def _start_environment(spec: Spec, role: Role) -> list[EnvironmentVariable]:
    """Makes the engine's process a fork of the server's, which has imported vLLM already.

    A start with warm caches takes 39 s so, and 55 s with a process that imports all again. That was measured with one
    device (benchmarks/results/starts.md). If CUDA is in use before the fork, vLLM itself takes a new process. On CPU
    it has no second process here.
    """
    own, chosen = spec.of(role), _chosen_options(spec, role)
    # Drivers of others may not bear a fork.
    is_nvidia = own.accelerator.type != "CPU" and own.accelerator.maker == "NVIDIA"
    forks = is_nvidia and own.parallelism.devices == 1 and not chosen.keys() & {*_NOT_FORKED}
    return [variable("VLLM_WORKER_MULTIPROC_METHOD", "fork")] if forks else []


def _process_environment() -> list[EnvironmentVariable]:
    return [
        variable("HOME", CACHE_MOUNT),
        # Python uses the user name in cache paths, but the user id has no entry in the image's /etc/passwd.
        variable("USER", "vllm"),
        variable("VLLM_NO_USAGE_STATS", "1"),
    ]
