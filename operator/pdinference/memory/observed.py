"""The memory plan with the values that vLLM measured at its start."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import PlanStatus, RoleMemory

_OBSERVED = ("observed_kv_capacity_tokens", "kv_capacity_error_percent")


@dataclass(frozen=True, slots=True)
class KvCache:
    """The KV cache of a pod, as vLLM reports it (`vllm:cache_config_info`).

    Attributes:
        blocks: Of all data-parallel ranks.
        block_size: Tokens of a block.
        ranks: Data-parallel ranks, which have equal caches.
    """

    blocks: int
    block_size: int
    ranks: int = 1

    @property
    def tokens(self) -> int:
        """Tokens that fit."""
        return self.blocks * self.block_size

    @property
    def of_a_rank(self) -> "KvCache":
        """That of one rank, which a plan is about."""
        return KvCache(self.blocks // self.ranks, self.block_size)


def compared(
    plan: PlanStatus | None, reported: Mapping[Role, Iterable[KvCache]], known: PlanStatus | None
) -> PlanStatus | None:
    """The plan's numbers with those of vLLM; None without either.

    Args:
        plan: The computed plan; None without facts about the model.
        reported: The KV caches that pods of each role have reported.
        known: The previous status, if it is about the same pods. Its values stay until pods report again after a
            restart of the operator.
    """
    roles = {}
    for role in ENGINE_ROLES:
        planned = getattr(plan, role, None) or RoleMemory()
        caches = (cache.of_a_rank for cache in reported.get(role, ()))
        smallest = min(caches, key=lambda cache: cache.tokens, default=None)
        observed = _observed(planned, smallest) if smallest else _members(getattr(known, role, None))
        roles[role.value] = planned.model_copy(update=observed)
    return PlanStatus(**roles) if plan is not None or any(role != RoleMemory() for role in roles.values()) else None


def _observed(planned: RoleMemory, cache: KvCache) -> dict[str, float | None]:
    """Of the pod with the smallest cache.

    Blocks are compared, not tokens: with sliding windows a block holds fewer tokens of a request than its size says,
    and vLLM's metric has the blocks only (`num_gpu_blocks` of `vllm:cache_config_info`).
    """
    if not planned.kv_blocks or planned.kv_capacity_tokens is None:
        return dict(zip(_OBSERVED, (cache.tokens, None), strict=True))
    tokens = planned.kv_capacity_tokens * cache.blocks // planned.kv_blocks
    error = round(100 * (planned.kv_blocks / cache.blocks - 1), 2) if cache.blocks else None
    return dict(zip(_OBSERVED, (tokens, error), strict=True))


def _members(memory: RoleMemory | None) -> dict[str, float | None]:
    return {name: getattr(memory, name, None) for name in _OBSERVED}
