"""The load of a running resource, from the metrics of its router pods at two moments."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from pdinference.api.names import METRIC_ANSWER_LENGTHS, METRIC_KV_PROMPT_TOKENS, METRIC_PROMPT_LENGTHS, KvSource
from pdinference.loadmetrics.scraping.exposition import Histogram
from pdinference.loadmetrics.scraping.http_answer import LONGEST_BODY, LONGEST_LINE
from pdinference.loadmetrics.scraping.text_format import Sample, measured, name_of, sample
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.router.endpoints import POST
from pdinference_advise.advice.workload.bounds import WorkloadError
from pdinference_advise.advice.workload.distribution import Quantiles
from pdinference_advise.advice.workload.synthetic import RepeatedShare, RequestClass, Synthetic

_REQUESTS: Final = b"pdinference_router_requests_total"
_TOKENS: Final = METRIC_KV_PROMPT_TOKENS.encode()
_HISTOGRAMS: Final = {
    f"{name}_{part}".encode(): (name, part)
    for name in (METRIC_PROMPT_LENGTHS, METRIC_ANSWER_LENGTHS)
    for part in ("bucket", "sum", "count")
}
_WANTED: Final = frozenset({_REQUESTS, _TOKENS, *_HISTOGRAMS})
_GENERATING: Final = frozenset(path for path, limits in POST.items() if limits)
_SERVED: Final = frozenset({"answered", "cut", "cancelled"})
_TURNED_AWAY: Final = frozenset({"limited", "unavailable"})
_MOST_SERIES: Final = 4096
_ENOUGH: Final = 200
"""Requests whose lengths are a distribution. With fewer between the moments, those since the router started count."""
_NOTABLE: Final = 0.01
_LAST_BUCKET: Final = 2.0
"""Width of the last bucket, which has no upper bound, as a factor."""


@dataclass(frozen=True, slots=True)
class RouterReading:
    """What a router pod has counted since it started.

    Attributes:
        outcomes: Requests that generate tokens, by how they ended.
        prompt: Prompt tokens of the requests that all D pods have finished.
        answer: Answer tokens of these.
        cached: Prompt tokens whose KV cache D had from an earlier prompt.
        prompt_tokens: All prompt tokens of D.
    """

    outcomes: Mapping[str, float]
    prompt: Histogram
    answer: Histogram
    cached: float
    prompt_tokens: float

    def since(self, before: "RouterReading | None") -> "RouterReading":
        """The growth since an earlier reading; all of it if there is none, or the router has started again since."""
        if before is None or _restarted(before, self):
            return self
        return RouterReading(
            {outcome: number - before.outcomes.get(outcome, 0.0) for outcome, number in self.outcomes.items()},
            _grown(self.prompt, before.prompt),
            _grown(self.answer, before.answer),
            self.cached - before.cached,
            self.prompt_tokens - before.prompt_tokens,
        )


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """The load of a resource.

    Attributes:
        workload: Requests like those of the resource.
        notes: Where its numbers are from, in sentences.
    """

    workload: Synthetic
    notes: tuple[str, ...]


def read_router(text: bytes, pod: str) -> RouterReading:
    """Read the metrics of a router pod.

    Args:
        text: The response of /metrics.
        pod: Name of the pod, for messages.

    Raises:
        WorkloadError: The text is not in Prometheus' format, or too long.
    """
    if len(text) > LONGEST_BODY:
        raise WorkloadError(f"The metrics of router pod {pod} are longer than {LONGEST_BODY:,} bytes.")
    try:
        found = [sample(line) for line in text.split(b"\n") if len(line) <= LONGEST_LINE and name_of(line) in _WANTED]
    except UnreadableError as error:
        raise WorkloadError(f"The metrics of router pod {pod} cannot be read: {error}.") from None
    if len(found) > _MOST_SERIES:
        raise WorkloadError(f"The metrics of router pod {pod} have more than {_MOST_SERIES:,} series.")
    samples = [one for one in found if not math.isnan(one.value)]
    tokens = [one for one in samples if one.name == _TOKENS]
    return RouterReading(
        _outcomes(samples),
        _histogram(samples, METRIC_PROMPT_LENGTHS),
        _histogram(samples, METRIC_ANSWER_LENGTHS),
        sum(one.value for one in tokens if one.labels.get(b"source") == KvSource.CACHE.encode()),
        sum(one.value for one in tokens),
    )


def load(before: Mapping[str, RouterReading], after: Mapping[str, RouterReading], seconds: float) -> LiveLoad:
    """The load between two moments.

    Each router pod counts its own requests, but all of them count the lengths in all D pods. So requests are summed
    over the pods, and lengths are of the pod that knows most.

    Args:
        before: The readings of all router pods, by name of the pod.
        after: The same, later.
        seconds: Time between them.

    Raises:
        WorkloadError: There were no requests, or their lengths are not known.
    """
    grown = {pod: reading.since(before.get(pod)) for pod, reading in after.items()}
    served, turned_away = (
        sum(growth.outcomes.get(outcome, 0.0) for growth in grown.values() for outcome in outcomes)
        for outcomes in (_SERVED, _TURNED_AWAY)
    )
    if not served:
        raise WorkloadError(
            f"No request ended in the {seconds:.0f} s between two readings of the router. Measure under load or for "
            "longer, or give --rate, --prompt-tokens and --answer-tokens."
        )
    lengths, since = _lengths(grown, after, seconds)
    cached = lengths.cached / lengths.prompt_tokens if lengths.prompt_tokens else 0.0
    workload = Synthetic(
        served / seconds,
        (RequestClass(quantiles(lengths.prompt), quantiles(lengths.answer)),),
        prefixes=RepeatedShare(min(cached, 1.0)) if cached >= _NOTABLE else None,
    )
    return LiveLoad(workload, tuple(_notes(served, turned_away, seconds, lengths, since)))


def quantiles(histogram: Histogram) -> Quantiles:
    """The lengths in a histogram, log-linear within its buckets, with its mean.

    Raises:
        WorkloadError: It is empty.
    """
    counts = list(accumulate((count for _, count in histogram.buckets), max))  # of untrusted pods, so it may fall
    if not counts or not counts[-1]:
        raise WorkloadError("The histogram of lengths is empty.")
    points: list[tuple[float, float]] = []
    low, before = 1.0, 0.0
    for (bound, _), count in zip(histogram.buckets, counts, strict=True):
        high = max(low, bound) if math.isfinite(bound) else _LAST_BUCKET * low
        if count > before:
            points += [(before / counts[-1], low), (count / counts[-1], high)]
        low, before = high, count
    return Quantiles(tuple(points)).with_mean(max(1.0, histogram.total / counts[-1]))


def _lengths(
    grown: Mapping[str, RouterReading], after: Mapping[str, RouterReading], seconds: float
) -> tuple[RouterReading, str]:
    """The reading that knows the most lengths, and its time."""
    for readings, since, enough in (
        (grown, f"in the last {seconds:.0f} s", _ENOUGH),
        (after, "since the router started", 1),
    ):
        most = max(readings.values(), key=lambda reading: reading.answer.count)
        if min(most.answer.count, most.prompt.count) >= enough:
            return most, since
    raise WorkloadError(
        f"The router does not report lengths of requests ({METRIC_PROMPT_LENGTHS}): no request has ended since it "
        "started, its image is older, or it cannot read the metrics of D. Give --prompt-tokens and --answer-tokens."
    )


def _notes(served: float, turned_away: float, seconds: float, lengths: RouterReading, since: str) -> list[str]:
    notes = [
        f"The rate is of {served:,.0f} requests that ended in the last {seconds:.0f} s.",
        f"Lengths are of {lengths.answer.count:,.0f} requests that D finished {since}, in buckets of a histogram.",
    ]
    if turned_away > _NOTABLE * (served + turned_away):
        notes.append(
            f"{turned_away:,.0f} requests were turned away (limits, no pod), and are not in the load: the demand is "
            "higher."
        )
    if lengths.cached:
        notes.append(
            f"{lengths.cached / lengths.prompt_tokens:.0%} of the prompt tokens were in D's prefix cache; this "
            "share is taken as one common beginning."
        )
    return notes


def _outcomes(samples: list[Sample]) -> Mapping[str, float]:
    counted: defaultdict[str, float] = defaultdict(float)
    for one in samples:
        if one.name == _REQUESTS and one.labels.get(b"path", b"").decode(errors="replace") in _GENERATING:
            counted[one.labels.get(b"outcome", b"").decode(errors="replace")] += one.value
    return dict(counted)


def _histogram(samples: list[Sample], name: str) -> Histogram:
    buckets: dict[float, float] = {}
    parts = {"sum": 0.0, "count": 0.0}
    for one in samples:
        of, part = _HISTOGRAMS.get(one.name, ("", ""))
        if of != name:
            continue
        if part != "bucket":
            parts[part] = one.value
        elif not math.isnan(bound := _bound(one.labels.get(b"le", b""))):
            buckets[bound] = one.value
    return Histogram(tuple(sorted(buckets.items())), parts["sum"], parts["count"])


def _bound(text: bytes) -> float:
    return math.inf if text == b"+Inf" else measured(text)


def _grown(new: Histogram, old: Histogram) -> Histogram:
    before = dict(old.buckets)
    buckets = tuple((bound, max(0.0, count - before.get(bound, 0.0))) for bound, count in new.buckets)
    return Histogram(buckets, new.total - old.total, new.count - old.count)


def _restarted(before: RouterReading, after: RouterReading) -> bool:
    """Whether a counter has fallen."""
    pairs = (
        (before.prompt.count, after.prompt.count),
        (before.answer.count, after.answer.count),
        (before.prompt_tokens, after.prompt_tokens),
        *((number, after.outcomes.get(outcome, 0.0)) for outcome, number in before.outcomes.items()),
    )
    return any(now < old for old, now in pairs)
