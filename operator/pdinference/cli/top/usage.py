"""Memory and load of an engine, from its metrics and the memory plan: pure.

Tests: tests/cli/test_top.py
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.status import RoleMemory
from pdinference.loadmetrics.scraping.exposition import Exposition
from pdinference.loadmetrics.scraping.http_answer import LONGEST_LINE
from pdinference.loadmetrics.scraping.text_format import name_of, sample

_TIERS: Final = {
    b"vllm:kv_offload_store_bytes_total": "cpu_written",
    b"vllm:kv_offload_load_bytes_total": "cpu_read",
    b"vllm:kv_offload_tiering_write_bytes_total": "disk_written",
    b"vllm:kv_offload_tiering_read_bytes_total": "disk_read",
}
"""Counters of the KV tiers, in bytes since the start of the engine."""
_MOST_SERIES: Final = 1000


@dataclass(frozen=True, slots=True)
class Tiers:
    """Bytes that an engine moved between its KV cache and its tiers since its start."""

    cpu_written: float = 0.0
    cpu_read: float = 0.0
    disk_written: float = 0.0
    disk_read: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineUse:
    """One engine.

    Attributes:
        engine: Name of the pod, with that of the engine if the pod has several.
        problem: Why its metrics are not known; empty if they are.
        weights_bytes: Weights on a device, as planned.
        kv_bytes: Size of the KV cache of a device, as planned.
        kv_tokens: Tokens that fit the KV cache, as vLLM reports them.
        kv_used: Share of the KV cache in use, 0 to 1.
        prompt_tokens, answer_tokens: Since its start.
        tiers: None without tiers.
    """

    role: Role
    engine: str
    problem: str = ""
    weights_bytes: int | None = None
    kv_bytes: int | None = None
    kv_tokens: int | None = None
    kv_used: float | None = None
    running: float | None = None
    waiting: float | None = None
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    tiers: Tiers | None = None


def engine_use(role: Role, engine: str, page: bytes, plan: RoleMemory | None) -> EngineUse:
    """Read the metrics of an engine.

    Args:
        role: Its role.
        engine: Its name.
        page: The response of /metrics.
        plan: The memory plan of the role; None if unknown.

    Raises:
        UnreadableError: The page is malformed or too long.
    """
    exposition = Exposition()
    lines = [line for line in page.split(b"\n") if len(line) <= LONGEST_LINE]
    for line in lines:
        exposition.take(line)
    reading = exposition.reading()
    tokens = reading.cache.tokens if reading.cache is not None else None
    plan = plan or RoleMemory()
    return EngineUse(
        role=role,
        engine=engine,
        weights_bytes=plan.weights_bytes,
        kv_bytes=plan.kv_bytes,
        kv_tokens=tokens,
        kv_used=reading.kv_usage,
        running=reading.running,
        waiting=reading.waiting,
        prompt_tokens=reading.prompt_tokens,
        answer_tokens=reading.generation_tokens,
        tiers=_tiers(lines),
    )


def _tiers(lines: Iterable[bytes]) -> Tiers | None:
    parsed = [sample(line) for line in lines if name_of(line) in _TIERS][:_MOST_SERIES]
    found = [one for one in parsed if not math.isnan(one.value)]
    if not found:
        return None
    sums: dict[str, float] = {}
    for one in found:
        sums[_TIERS[one.name]] = sums.get(_TIERS[one.name], 0.0) + one.value
    return Tiers(**sums)
