"""The steps of a pod's engine, as its metrics count them. /health does not reach the engine."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.loadmetrics.scraping.text_format import name_of, sample
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.router.pod import Pod
from pdinference.router.transfers import fetch_metrics

_STEPS: Final = b"vllm:iteration_tokens_total_count"
"""vllm/v1/metrics/loggers.py. Steps without output are not counted, as those of a long prompt that is computed in parts
(vllm/v1/engine/async_llm.py)."""
_WAITING: Final = b"vllm:num_requests_waiting_by_reason"
_DEFERRED: Final = b"deferred"
"""Requests that wait for something else than room, KV cache that moves among it (vllm/v1/core/sched/scheduler.py)."""
_FOR_ROOM: Final = b"capacity"
_KV_USE: Final = b"vllm:kv_cache_usage_perc"
"""It is reported with each step, and grows with each part of a prompt."""
_Engines = Mapping[bytes, Mapping[bytes, float]]
"""By engine: the series above, summed; for requests that wait by their reason."""


@dataclass(frozen=True, slots=True)
class EngineProgress:
    """What an engine that goes on changes, and what it says besides.

    Attributes:
        steps: Its steps with output.
        kv_use: The share of its KV cache that is in use. With new requests that wait for KV cache of P it changes
            although nothing is computed.
        deferred: Requests that wait for KV cache of P, or for something else than room. It does not show progress.
        queued: Requests that wait for room; None if it does not say. It does not show progress either.
    """

    steps: float
    kv_use: float
    deferred: float = field(default=0.0, compare=False)
    queued: float | None = field(default=None, compare=False)


@dataclass(slots=True)
class Steps:
    """For how long an engine has taken no step, as readings of its metrics show.

    A reading that fails shows nothing: the ones before and after it do.

    Attributes:
        last: What the last reading showed; None before the first.
        since: When that was first read.
        until: When that was last read.
        tried_at: When a reading last began.
    """

    last: object = None
    since: float = 0.0
    until: float = 0.0
    tried_at: float = -math.inf

    def read(self, found: object, began: float, ended: float) -> None:
        """Note a reading.

        Args:
            found: The steps, with or without what else changes; None if they could not be read.
            began: When the reading began.
            ended: When it ended.
        """
        self.tried_at = began
        if found is None:
            return
        if found != self.last:
            self.last, self.since = found, ended
        self.until = began

    def without(self, since: float = -math.inf) -> float:
        """Seconds without a step, from a time on.

        Args:
            since: The time.
        """
        return self.until - max(self.since, since)


async def read_progress(pod: Pod, share: Share, *, all_ranks: bool = False) -> EngineProgress | None:
    """The progress of the engines of a server together, or of one rank; None if it does not report their steps.

    Args:
        pod: The pod.
        share: What the reading may use.
        all_ranks: Whether the other data-parallel ranks count as well.
    """
    try:
        engines = await _read_once(pod, share)
    except UnreadableError:
        return None
    rank = pod.observed.rank
    counted = engines.values() if rank is None or all_ranks else [engines.get(b"%d" % rank, {})]
    found: defaultdict[bytes, float] = defaultdict(float)
    for engine in counted:
        for name, value in engine.items():
            found[name] += value
    if _STEPS not in found:
        return None
    return EngineProgress(found[_STEPS], found.get(_KV_USE, 0.0), found.get(_DEFERRED, 0.0), found.get(_FOR_ROOM))


async def _read_once(pod: Pod, share: Share) -> _Engines:
    """The series of each engine. Ranks of one vLLM that are read at the same time share a reading."""
    first = min(pod.together, key=lambda one: one.observed.rank or 0)
    if first.reading is None or first.reading.done():
        first.reading = asyncio.ensure_future(_read(first, share))
    return await asyncio.shield(first.reading)


async def _read(pod: Pod, share: Share) -> _Engines:
    found: defaultdict[bytes, defaultdict[bytes, float]] = defaultdict(lambda: defaultdict(float))

    def take(line: bytes) -> None:
        if (name := name_of(line)) in {_STEPS, _KV_USE, _WAITING}:
            one = sample(line)
            what = one.labels.get(b"reason", b"") if name == _WAITING else name
            found[one.labels.get(b"engine", b"")][what] += one.value

    await fetch_metrics(pod, take, share, all_ranks=True)
    return found
