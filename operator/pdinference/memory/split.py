"""Whether a model can be split over devices as in a spec: the checks of vLLM at its start."""

from collections.abc import Iterator
from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.memory.model.shape import ModelFacts

GPUS_OF_A_HOST: Final = 8
"""The most GPUs that a host has. A pod gets all of its devices from one host."""
_LARGEST = 64
"""Largest tensor-parallel size that the resource takes."""


def fewest_nodes(parts: int, devices: int, *, least: int, most: int) -> int | None:
    """The fewest nodes, of those between bounds, on which no host needs too many GPUs; None if there is no such number.

    Args:
        parts: What each node has an equal and whole number of: data-parallel ranks, or devices.
        devices: Of the instance.
        least: The lower bound.
        most: The upper one.
    """
    possible = (nodes for nodes in range(least, most + 1) if parts % nodes == 0)
    return next((nodes for nodes in possible if devices // nodes <= GPUS_OF_A_HOST), None)


def split_problems(spec: Spec, role: Role, facts: ModelFacts) -> Iterator[Problem]:
    """The errors of a role's `parallelism` for this model.

    Source: `verify_with_parallel_config` in vllm/config/model.py, `get_pp_indices` in vllm/distributed/utils.py, and
    the assertions on heads in vllm/model_executor/models/llama.py.
    """
    parallel = spec.of(role).parallelism
    where = f"spec.{role.value}.parallelism"
    if not _divides(facts, parallel.tensor):
        heads = f"{' or '.join(map(str, sorted({*facts.layer_heads} or {facts.heads})))} attention heads"
        if facts.mla is None and facts.kv_heads != facts.heads:
            heads += f" and {facts.kv_heads} KV heads"
        if facts.state is not None and not facts.state.divides(parallel.tensor):
            heads += ", or the layers that keep a state,"
        fitting = [str(size) for size in tensor_sizes(facts)]
        yield Problem(
            f"{where}.tensor", f"{parallel.tensor} does not split the model's {heads} evenly. Use {_either(fitting)}."
        )
    if parallel.layer_partition and sum(parallel.layer_partition) != facts.layers:
        yield Problem(
            f"{where}.layerPartition",
            f"{parallel.layer_partition} adds up to {sum(parallel.layer_partition)} layers; the model has "
            f"{facts.layers}. Make it add up, or leave it out.",
        )
    if parallel.pipeline > facts.layers:
        yield Problem(f"{where}.pipeline", f"{parallel.pipeline} stages for {facts.layers} layers; use fewer.")


def tensor_sizes(facts: ModelFacts) -> list[int]:
    """Every tensor-parallel size that the model can be split into."""
    return [size for size in range(1, _LARGEST + 1) if _divides(facts, size)]


def _divides(facts: ModelFacts, tensor: int) -> bool:
    """Heads are spread evenly; KV heads too, unless there are fewer than ranks: then each is held by equally many."""
    if any(heads % tensor for heads in {facts.heads, *facts.layer_heads}) or not (
        facts.state is None or facts.state.divides(tensor)
    ):
        return False
    pairs = (sorted((heads, tensor)) for heads in (facts.kv_heads, facts.full_kv_heads))
    return facts.mla is not None or all(more % fewer == 0 for fewer, more in pairs)


def _either(choices: list[str]) -> str:
    return " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]
