"""Parses vLLM's /metrics to the numbers that signals need.

Tests: tests/loadmetrics/test_exposition.py, tests/loadmetrics/test_exposition_fuzz.py
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pdinference.loadmetrics.scraping.text_format import Sample, measured, name_of, sample
from pdinference.loadmetrics.scraping.unreadable import Reason, UnreadableError
from pdinference.memory.observed import KvCache
from pdinference.planning.scaling.vllm_metrics import HOLDING_STAGES, VllmMetric

PREFIX: Final = b"vllm:"
"""Prefix of relevant lines."""
_MOST_LINES: Final = 4096
"""Maximum number of relevant lines. An engine has 62, and at most 66 engines fit the maximum body."""
_MOST_BUCKETS: Final = 64
"""Maximum number of buckets of a histogram; vLLM has at most 23. The operator keeps 30 s of readings per pod."""
_MOST_BLOCKS: Final = 10**9
_LARGEST_BLOCK: Final = 2**20


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram since the start of the process; `buckets` are upper bound and cumulative count, in order.

    Only latencies have buckets. Other histograms need only sum and count.
    """

    buckets: tuple[tuple[float, float], ...]
    total: float
    count: float


@dataclass(frozen=True, slots=True)
class Reading:
    """Metrics of one pod, summed over its engines (data parallelism). None if vLLM did not report a metric.

    All numbers are finite and not negative.

    Attributes:
        kv_usage: Used fraction of the KV cache, 0 to 1; mean over engines.
        running: Number of running requests.
        waiting: Number of waiting requests.
        holding: Waiting requests that already have KV blocks, because D pulls their KV cache.
        cache: Size of the KV cache of all engines.
        prompt_tokens: Prompt tokens so far.
        generation_tokens: Generated tokens so far.
        prompt_lengths: Prompt tokens of finished requests.
        answer_lengths: Generated tokens of finished requests.
        prefill: Prefill time of finished requests.
        first_token: Time to the first token.
        inter_token: Time between tokens.
    """

    kv_usage: float | None
    running: float | None
    waiting: float | None
    holding: float
    cache: KvCache | None
    prompt_tokens: float | None
    generation_tokens: float | None
    prompt_lengths: Histogram | None
    answer_lengths: Histogram | None
    prefill: Histogram | None
    first_token: Histogram | None
    inter_token: Histogram | None

    @property
    def counters(self) -> tuple[float, ...]:
        """Values that only grow during the lifetime of the process."""
        histograms = (self.prompt_lengths, self.answer_lengths, self.prefill, self.first_token, self.inter_token)
        tokens = (self.prompt_tokens or 0.0, self.generation_tokens or 0.0)
        counts = (histogram.count if histogram else 0.0 for histogram in histograms)
        totals = (histogram.total if histogram else 0.0 for histogram in histograms)
        return (*tokens, *counts, *totals)


_HISTOGRAMS: Final = (
    VllmMetric.PROMPT_LENGTHS,
    VllmMetric.ANSWER_LENGTHS,
    VllmMetric.PREFILL_SECONDS,
    VllmMetric.FIRST_TOKEN_SECONDS,
    VllmMetric.INTER_TOKEN_SECONDS,
)
_GAUGES_AND_COUNTERS: Final = (
    VllmMetric.KV_USAGE,
    VllmMetric.RUNNING,
    VllmMetric.WAITING,
    VllmMetric.PROMPT_TOKENS,
    VllmMetric.GENERATION_TOKENS,
)
_BUCKETS: Final[Mapping[bytes, VllmMetric]] = {
    f"{metric}_bucket".encode(): metric for metric in (VllmMetric.FIRST_TOKEN_SECONDS, VllmMetric.INTER_TOKEN_SECONDS)
}
_SUMMED: Final = frozenset(
    name.encode()
    for name in (*_GAUGES_AND_COUNTERS, *(f"{metric}_{part}" for metric in _HISTOGRAMS for part in ("sum", "count")))
)
_FETCHES: Final = VllmMetric.KV_FETCHES.encode()
_HOLDING: Final = frozenset(stage.encode() for stage in HOLDING_STAGES)
_CACHE: Final = VllmMetric.CACHE.encode()
_WANTED: Final = frozenset({*_SUMMED, *_BUCKETS, _FETCHES, _CACHE})
_WHOLE_NUMBER: Final = re.compile(rb"[0-9]{1,10}")


class Exposition:
    """Sums up a response of /metrics while it arrives, without keeping its text.

    A number out of range makes only its own metric unknown.
    """

    def __init__(self) -> None:
        self._lines = 0
        self._engines = 0
        self._sums: dict[bytes, float] = {}
        self._buckets: dict[VllmMetric, dict[float, float]] = {metric: {} for metric in _BUCKETS.values()}
        self._blocks = 0
        self._block_size = 0
        self._odd_cache = False

    def take(self, line: bytes) -> None:
        """Add a line.

        Raises:
            UnreadableError: The line is malformed, or the response has too many lines.
        """
        name = name_of(line)
        if name not in _WANTED:
            return
        self._lines += 1
        if self._lines > _MOST_LINES:
            raise UnreadableError(Reason.TOO_LONG, f"the response has more than {_MOST_LINES} lines of vLLM metrics")
        found = sample(line)
        if name in _BUCKETS:
            self._add_bucket(_BUCKETS[name], found)
        elif name == _CACHE:
            self._add_cache(found.labels)
        elif name == _FETCHES:
            self._add(name, found.value if found.labels.get(b"stage") in _HOLDING else 0.0)
        else:
            self._engines += name == VllmMetric.KV_USAGE.encode()
            self._add(name, found.value)

    def reading(self) -> Reading:
        """The metrics of all lines."""
        usage = self._sum(VllmMetric.KV_USAGE)
        return Reading(
            kv_usage=usage / self._engines if usage is not None else None,
            running=self._sum(VllmMetric.RUNNING),
            waiting=self._sum(VllmMetric.WAITING),
            holding=self._sum(VllmMetric.KV_FETCHES) or 0.0,
            cache=self._cache(),
            prompt_tokens=self._sum(VllmMetric.PROMPT_TOKENS),
            generation_tokens=self._sum(VllmMetric.GENERATION_TOKENS),
            prompt_lengths=self._histogram(VllmMetric.PROMPT_LENGTHS),
            answer_lengths=self._histogram(VllmMetric.ANSWER_LENGTHS),
            prefill=self._histogram(VllmMetric.PREFILL_SECONDS),
            first_token=self._histogram(VllmMetric.FIRST_TOKEN_SECONDS),
            inter_token=self._histogram(VllmMetric.INTER_TOKEN_SECONDS),
        )

    def _add(self, name: bytes, value: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value  # NaN stays NaN: the sum is unknown

    def _add_bucket(self, metric: VllmMetric, found: Sample) -> None:
        buckets = self._buckets[metric]
        text = found.labels.get(b"le", b"")
        bound = math.inf if text == b"+Inf" else measured(text)
        if math.isnan(bound) or (bound not in buckets and len(buckets) == _MOST_BUCKETS):
            self._add(f"{metric}_count".encode(), math.nan)
        else:
            buckets[bound] = buckets.get(bound, 0.0) + found.value

    def _add_cache(self, labels: Mapping[bytes, bytes]) -> None:
        """Take the KV cache of all engines: vLLM writes their sum into the line of each (v1/metrics/loggers.py)."""
        blocks, size = _whole(labels.get(b"num_gpu_blocks")), _whole(labels.get(b"block_size"))
        self._blocks = max(self._blocks, blocks)
        self._block_size = size
        self._odd_cache |= not (blocks and size <= _LARGEST_BLOCK and self._blocks <= _MOST_BLOCKS)

    def _cache(self) -> KvCache | None:
        known = self._blocks and self._block_size and not self._odd_cache
        return KvCache(self._blocks, self._block_size, max(1, self._engines)) if known else None

    def _sum(self, name: str) -> float | None:
        found = self._sums.get(name.encode())
        return None if found is None or math.isnan(found) else found

    def _histogram(self, metric: VllmMetric) -> Histogram | None:
        count, total = self._sum(f"{metric}_count"), self._sums.get(f"{metric}_sum".encode(), 0.0)
        buckets = tuple(sorted(self._buckets.get(metric, {}).items()))
        if count is None or math.isnan(total) or any(math.isnan(number) for _, number in buckets):
            return None
        return Histogram(buckets, total, count)


def _whole(text: bytes | None) -> int:
    """An integer of at most ten digits; 0 for other text."""
    return int(text) if text is not None and _WHOLE_NUMBER.fullmatch(text) else 0
