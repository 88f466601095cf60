"""Compiled code that outlives pods: its key, and the command of a vLLM that takes and keeps it.

Tests: tests/engine/test_compile_cache.py, tests/engine/scripts/test_compile_cache.py
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from pdinference.api.engines import Slot
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.traces import OPTION as TRACES
from pdinference.engine.command import Command, EnvironmentVariable, script_program, variable
from pdinference.engine.queue import OPTION as SCHEDULING_POLICY

COMPILE_CACHE_MOUNT: Final = "/compile-cache"
"""Mount path of the volume with the archives."""
COMPILE_CACHE_SCRIPT: Final = "compile_cache"
"""The program that starts vLLM with them (engine/scripts/compile_cache.py)."""
_VLLM, _TRITON, _FLASHINFER = COMPILE_VARIABLES = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE")
"""Variables with folders of compiled code."""
_KEY_LENGTH: Final = 16
_WITHOUT_EFFECT: Final = frozenset(
    {
        "disable-access-log-for-endpoints",
        "enable-prompt-tokens-details",
        "host",
        "kv-transfer-config",
        TRACES,
        "port",
        SCHEDULING_POLICY,
        "served-model-name",
        "shutdown-timeout",
    }
)
"""Options that differ between resources, and not in what vLLM compiles."""


def compile_cache_key(
    spec: Spec, role: Role, options: Mapping[str, Any], node_rank: int = 0, slot: Slot | None = None
) -> str:
    """Identity of what the engines of a role compile.

    vLLM looks up compiled code by a hash of its own (`compilation/backends.py`), so a key of two engines that differ
    costs time and no correctness. This one keeps their archives apart, so that they do not replace each other.

    Args:
        spec: The spec.
        role: The role of the engines.
        options: vLLM's options.
        node_rank: The node within an instance of several. Their ranks differ, and so may their products.
        slot: Place of the engine among several in a pod. Their folders differ, and so does vLLM's hash.
    """
    parts = {
        "image": spec.engine.image,
        "source": spec.model.source.identity(),
        "options": {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT},
        "environment": {**spec.engine.env, **spec.of(role).env},
        "node": node_rank,
        "products": sorted(spec.of(role, node_rank).products),
        "slot": slot.name if slot else "",
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_KEY_LENGTH]


def with_compile_cache(command: Command, key: str, port: int) -> Command:
    """The command of a vLLM that starts with compiled code, and keeps it.

    Args:
        command: The command of vLLM.
        key: Identity of what it compiles.
        port: Port on which vLLM says that it is healthy; 0 on a node that serves nothing.
    """
    return Command(
        program=(*script_program(COMPILE_CACHE_SCRIPT), COMPILE_CACHE_MOUNT, key, str(port), *command.program),
        arguments=command.arguments,
        environment=command.environment,
        scripts=(COMPILE_CACHE_SCRIPT, *command.scripts),
    )


def compile_environment(folder: str) -> list[EnvironmentVariable]:
    """Where an engine compiles: in folders that it alone has, and that the program may empty.

    vLLM sets Triton's folder only in a process that compiles the model. Without the variable a start that finds the
    model compiled looks for kernels elsewhere, and compiles them again (benchmarks/results/starts.md).

    Args:
        folder: A folder of the engine alone.
    """
    places = {_VLLM: f"{folder}/vllm", _TRITON: f"{folder}/triton", _FLASHINFER: folder}
    return [variable(name, value) for name, value in places.items()]
