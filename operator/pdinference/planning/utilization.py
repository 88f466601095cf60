"""How much of P and D was in use, and what limits requests that miss an objective.

Tests: tests/planning/test_objectives.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pdinference.api.names import Role
from pdinference.planning.objectives import Attainment, Kind, StatedObjectives, StreamCounts

Limit = Literal["", "NoPods", "Parameter", "ParameterSpeed", "Transfer", "KVCache", "Decode", "DecodeSpeed"]

_MOST: Final = 0.5
"""Share of the time to first token from which on a stage is the limit."""
_BUSY: Final = 0.7
"""Share of its capacity from which on requests queue in P."""
_FULL: Final = 0.9
"""Share of the KV cache from which on requests wait for it."""
_NEAR: Final = 0.9
"""Share of the objective that even an idle D takes for a token."""


@dataclass(frozen=True, slots=True)
class RoleUse:
    """Use of a role in the last minutes. None where it is unknown.

    Attributes:
        busy: Share of its capacity, 0 to 1: of P, time in which it computed prompts; of D, decode load.
        tokens_per_gpu: Tokens a second for each GPU: of P those of prompts, of D the generated ones.
        kv_usage: Share of its KV cache in use, 0 to 1.
    """

    busy: float | None = None
    tokens_per_gpu: float | None = None
    kv_usage: float | None = None


@dataclass(frozen=True, slots=True)
class Utilization:
    """Use of a resource.

    Attributes:
        roles: Its roles that are measured.
        idle_token_seconds: Time per output token of an idle D pod; None if unknown.
        cost_per_million: Cost of a million tokens of the last hour; None without prices or tokens.
    """

    roles: Mapping[Role, RoleUse] = field(default_factory=dict)
    idle_token_seconds: float | None = None
    cost_per_million: float | None = None

    def of(self, role: Role) -> RoleUse:
        """Use of a role; unknown if it is not measured."""
        return self.roles.get(role, RoleUse())


def limit(
    objectives: StatedObjectives,
    found: Mapping[Kind, Attainment],
    counts: StreamCounts,
    use: Utilization,
    *,
    transfer_share: float | None,
) -> Limit:
    """What limits requests that miss an objective; the time to first token first. Empty if none is.

    Args:
        objectives: The objectives.
        found: How far each was kept.
        counts: What routers measured.
        use: What the pods reported.
        transfer_share: Share of the time to first token that is KV transfer, 0 to 1; None if unknown.
    """
    if _is_missed("ttft", objectives, found):
        return _of_first_token(counts, use, transfer_share)
    if _is_missed("tpot", objectives, found):
        return _of_output_tokens(objectives, use)
    return ""


def gpu_price(products: Sequence[str], prices: Mapping[str, float]) -> float | None:
    """Price of an hour of a GPU that is one of some products: of the dearest; None if one has no price.

    Args:
        products: What it may be; empty for any.
        prices: Price of an hour of each product.
    """
    found = [prices.get(product) for product in products]
    known = [price for price in found if price is not None]
    return max(known) if known and len(known) == len(found) else None


def _is_missed(kind: Kind, objectives: StatedObjectives, found: Mapping[Kind, Attainment]) -> bool:
    one = found.get(kind)
    return one is not None and one.is_missed(objectives.percentile, before=True) is True


def _of_first_token(counts: StreamCounts, use: Utilization, transfer_share: float | None) -> Limit:
    stages = counts.queue_seconds + counts.prefill_seconds + counts.decode_seconds
    if counts.queue_seconds > _MOST * stages:
        return "NoPods"
    if counts.prefill_seconds > _MOST * stages:
        busy = use.of(Role.PARAMETER).busy
        return "Parameter" if busy is None or busy >= _BUSY else "ParameterSpeed"
    if transfer_share is not None and transfer_share >= _MOST:
        return "Transfer"
    if (use.of(Role.DECODE).kv_usage or 0.0) >= _FULL:
        return "KVCache"
    return "Decode"


def _of_output_tokens(objectives: StatedObjectives, use: Utilization) -> Limit:
    idle = use.idle_token_seconds
    if idle is not None and objectives.tpot is not None and idle >= _NEAR * objectives.tpot:
        return "DecodeSpeed"
    return "Decode"
