"""Sums up counters of vLLM over all pods and across their restarts: KV cache from P to D, lengths of requests."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from pdinference.api.names import (
    METRIC_KV_BYTES,
    METRIC_KV_PROMPT_TOKENS,
    METRIC_KV_TRANSFER_SECONDS,
    METRIC_KV_TRANSFERS,
    METRIC_TOKEN_GAP_SECONDS,
    METRIC_TOKEN_GAPS,
    KvSource,
    Role,
    TransferResult,
)
from pdinference.engine.connectors.handover import Counter
from pdinference.loadmetrics.scraping.fetch import Share, fetch
from pdinference.loadmetrics.scraping.text_format import Sample, name_of, sample
from pdinference.loadmetrics.scraping.unreadable import Reason, UnreadableError
from pdinference.router import lengths
from pdinference.router.pod import Pod
from pdinference.router.pods import Pods

_ROUND_S: Final = 1.0
_BUSY_S: Final = 10.0
"""Time between two readings of a pod that has requests, or whose counters moved."""
_AT_REST_S: Final = 60.0
_TIMEOUT_S: Final = 5.0
_PREFIX: Final = b"vllm:"

Counts = Mapping[Counter, float]

_SOURCES: Final[Mapping[bytes, KvSource]] = {
    b"external_kv_transfer": KvSource.PARAMETER,
    b"local_compute": KvSource.DECODE,
    b"local_cache_hit": KvSource.CACHE,
}
_PROMPT_TOKENS: Final = b"vllm:prompt_tokens_by_source_total"
"""vllm/v1/metrics/loggers.py."""
_GAPS: Final[Mapping[bytes, Counter]] = {
    b"vllm:inter_token_latency_seconds_count": (METRIC_TOKEN_GAPS, ""),
    b"vllm:inter_token_latency_seconds_sum": (METRIC_TOKEN_GAP_SECONDS, ""),
}
_OF_DECODE: Final = frozenset({_PROMPT_TOKENS, *_GAPS, *lengths.NAMES})
HELP: Final[Mapping[str, tuple[str, str]]] = {
    METRIC_KV_PROMPT_TOKENS: ("source", "Prompt tokens of D by where their KV cache is from."),
    METRIC_KV_TRANSFERS: ("result", "Transfers of KV cache from P to D."),
    METRIC_KV_BYTES: ("", "Bytes of KV cache in complete transfers."),
    METRIC_KV_TRANSFER_SECONDS: ("", "Sum of the durations of complete transfers."),
    METRIC_TOKEN_GAPS: ("", "Gaps between the tokens of answers in D; a gap is a step of vLLM."),
    METRIC_TOKEN_GAP_SECONDS: ("", "Sum of these gaps."),
}
"""Label and description of each series."""
_NONE: Final[Mapping[bytes, Counter]] = {}
_LOST: Final[tuple[Counter, ...]] = (
    (METRIC_KV_TRANSFERS, TransferResult.FAILED),
    (METRIC_KV_TRANSFERS, TransferResult.EXPIRED),
)
"""Growth of these is no proof of a fault: requests that clients give up expire, too."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Counters of a pod.

    Attributes:
        at: When they were read, on the clock of the event loop.
        turn: The last request to the pod at that time.
        moved: Whether a counter had changed since the reading before.
        counts: The counters; None if the pod has never answered.
    """

    at: float
    turn: int
    moved: bool
    counts: Counts | None


class Transfers(Collector):
    """Reads the counters of P and D pods, and exports their growth since the router started.

    What a pod counted before its first reading is left out: it may be from before the router started.

    Args:
        pods: The pods.
        share: What readings may use.
        counters: What the hand-over counts (`Handover.counters`).
    """

    def __init__(self, pods: Pods, share: Share, counters: Mapping[bytes, Counter]) -> None:
        self._pods = pods
        self._share = share
        self._counters = counters
        self._readings: dict[Pod, _Reading] = {}
        self._totals: dict[Counter, float] = {}

    async def forever(self) -> None:
        """Read until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(_ROUND_S)

    async def round(self) -> None:
        """Read each pod that is due; of one with several ranks, the first one stands for all."""
        pods = [pod for pod in self._pods if pod.observed.ready and not pod.observed.rank]
        self._readings = {pod: reading for pod, reading in self._readings.items() if pod in pods}
        await asyncio.gather(*(self._read(pod) for pod in pods if self._is_due(pod)))

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        """The series. Those that no pod reports are absent."""
        for name, (label, description) in HELP.items():
            family = CounterMetricFamily(name, description, labels=[label] if label else [])
            for (of, value), total in self._totals.items():
                if of == name:
                    family.add_metric([value] if label else [], total)
            if family.samples:
                yield family
        yield from lengths.families(self._totals)

    def _is_due(self, pod: Pod) -> bool:
        last = self._readings.get(pod)
        if last is None:
            return True
        busy = any(one.under_way for one in pod.together) or _turn(pod) != last.turn or last.moved
        return asyncio.get_running_loop().time() - last.at >= (_BUSY_S if busy else _AT_REST_S)

    async def _read(self, pod: Pod) -> None:
        turn = _turn(pod)
        counts = await read_counts(pod, self._share, self._counters, all_ranks=True)
        last = self._readings.get(pod)
        before = last.counts if last is not None else None
        moved = False
        if counts and before is not None:
            restarted = any(counts.get(counter, value) < value for counter, value in before.items())
            moved = self._add({} if restarted else before, counts)
            if not restarted and any(counts.get(lost, 0.0) > before.get(lost, 0.0) for lost in _LOST):
                self._pods.doubt(*pod.together)
            counts = counts if restarted else {**before, **counts}
        elif counts:
            self._add(counts, counts)
        self._readings[pod] = _Reading(asyncio.get_running_loop().time(), turn, moved, counts or before)

    def _add(self, before: Counts, counts: Counts) -> bool:
        """Add the growth to the totals. Whether there was any."""
        growth = {counter: value - before.get(counter, 0.0) for counter, value in counts.items()}
        for counter, number in growth.items():
            self._totals[counter] = self._totals.get(counter, 0.0) + number
        return any(growth.values())


def _turn(pod: Pod) -> int:
    return max(one.turn for one in pod.together)


async def read_counts(
    pod: Pod, share: Share, transfers: Mapping[bytes, Counter] = _NONE, *, all_ranks: bool = False
) -> Counts | None:
    """The counters of a pod since its vLLM started, of which it may have none; None if it does not answer.

    Args:
        pod: The pod.
        share: What the reading may use.
        transfers: Counters of transfers, beside those that D has with every connector.
        all_ranks: Whether those of the other data-parallel ranks are counted as well.
    """
    found: dict[Counter, float] = {}

    def take(line: bytes) -> None:
        name = name_of(line)
        if name not in _OF_DECODE and name not in transfers:
            return
        one = sample(line)
        counter = transfers.get(name) or (_of_decode(one) if pod.observed.role is Role.DECODE else None)
        if counter is not None:
            found[counter] = found.get(counter, 0.0) + one.value  # over engines; NaN stays NaN

    try:
        await fetch_metrics(pod, take, share, all_ranks=all_ranks)
    except UnreadableError:
        return None
    return {counter: value for counter, value in found.items() if not math.isnan(value)}


async def fetch_metrics(pod: Pod, take: Callable[[bytes], None], share: Share, *, all_ranks: bool = False) -> None:
    """Call `take` with each line of vLLM's metrics of a pod.

    Args:
        pod: The pod.
        take: Takes a line.
        share: What the reading may use.
        all_ranks: Whether lines of the other data-parallel ranks of its vLLM are among them.

    Raises:
        UnreadableError: The response is missing or cannot be used.
    """
    host, _, port = pod.observed.address.rpartition(":")
    if not port:
        raise UnreadableError(Reason.UNREACHABLE, "the pod has no address any more")
    if pod.observed.rank is not None and not all_ranks:
        take = _of_rank(pod.observed.rank, take)
    async with share.connections:
        await fetch(host.strip("[]"), int(port), take, prefix=_PREFIX, share=share, seconds=_TIMEOUT_S)


def _of_rank(rank: int, take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Takes the lines that are of a rank, or of no rank. Quotes in the values of labels are escaped."""
    own = b'engine="%d"' % rank

    def chosen(line: bytes) -> None:
        if own in line or b'engine="' not in line:
            take(line)

    return chosen


def _of_decode(found: Sample) -> Counter | None:
    """The series of a sample that counts in D alone."""
    if found.name in lengths.NAMES:
        return lengths.series(found)
    if (gaps := _GAPS.get(found.name)) is not None:
        return gaps
    source = _SOURCES.get(found.labels.get(b"source", b""))
    return None if source is None else (METRIC_KV_PROMPT_TOKENS, source)
