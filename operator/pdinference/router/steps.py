"""The steps of a pod's engine, as its metrics count them. /health does not reach the engine."""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.loadmetrics.scraping.text_format import name_of, sample
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.router.pod import Pod
from pdinference.router.transfers import fetch_metrics

_STEPS: Final = b"vllm:iteration_tokens_total_count"
"""vllm/v1/metrics/loggers.py. Steps without output are not counted, as those of a long prompt that is computed in parts
(vllm/v1/engine/async_llm.py)."""
_KV_USE: Final = b"vllm:kv_cache_usage_perc"
"""It is reported with each step, and grows with each part of a prompt."""


class EngineProgress(NamedTuple):
    """What an engine that goes on changes.

    Attributes:
        steps: Its steps with output.
        kv_use: The share of its KV cache that is in use. With new requests that wait for KV cache of P it changes
            although nothing is computed.
    """

    steps: float
    kv_use: float


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


async def read_progress(pod: Pod, share: Share) -> EngineProgress | None:
    """The progress of all engines of a server together; None if it does not report their steps."""
    found: dict[bytes, float] = {}

    def take(line: bytes) -> None:
        if (name := name_of(line)) in {_STEPS, _KV_USE}:
            found[name] = found.get(name, 0.0) + sample(line).value

    try:
        await fetch_metrics(pod, take, share)
    except UnreadableError:
        return None
    return EngineProgress(found[_STEPS], found.get(_KV_USE, 0.0)) if _STEPS in found else None
