"""What a router pod reports of the KV transfer, and its counts over a window. The numbers of pods are untrusted."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Final

from pdinference.api import names
from pdinference.api.names import KvSource, TransferResult, Verification
from pdinference.loadmetrics.counter_window import CounterWindow
from pdinference.loadmetrics.scraping.text_format import Sample, name_of, sample
from pdinference.planning.transfer_measurements import (
    FAULTS,
    MOST_PAIRS,
    CanaryFacts,
    Counted,
    PairFacts,
    TransferFacts,
)

_Series = tuple[str, str]
"""Name and value of the label, if it has one."""
_LABELS: Final = {
    names.METRIC_KV_PROMPT_TOKENS: b"source",
    names.METRIC_ALONE_PROMPT_TOKENS: b"source",
    names.METRIC_KV_TRANSFERS: b"result",
    f"{names.METRIC_STAGES}_sum": b"stage",
    f"{names.METRIC_STAGES}_count": b"stage",
    names.METRIC_VERIFICATION: b"state",
}
_COUNTERS: Final[dict[_Series, str]] = {
    (names.METRIC_KV_PROMPT_TOKENS, KvSource.PARAMETER): "parameter_tokens",
    (names.METRIC_KV_PROMPT_TOKENS, KvSource.DECODE): "decode_tokens",
    (names.METRIC_KV_PROMPT_TOKENS, KvSource.CACHE): "cached_tokens",
    (names.METRIC_KV_TRANSFERS, TransferResult.COMPLETE): "complete",
    (names.METRIC_KV_TRANSFERS, TransferResult.FAILED): "failed",
    (names.METRIC_KV_TRANSFERS, TransferResult.EXPIRED): "expired",
    (names.METRIC_KV_BYTES, ""): "bytes",
    (names.METRIC_KV_TRANSFER_SECONDS, ""): "transfer_seconds",
    (names.METRIC_TOKEN_GAPS, ""): "steps",
    (names.METRIC_TOKEN_GAP_SECONDS, ""): "step_seconds",
    (names.METRIC_DECODE_WAIT, ""): "waiting_seconds",
    (names.METRIC_HANDED_OVER, ""): "handed_over",
    (names.METRIC_ALONE_PROMPT_TOKENS, KvSource.DECODE): "alone_tokens",
    (names.METRIC_ALONE_PROMPT_TOKENS, KvSource.CACHE): "alone_cached_tokens",
    (f"{names.METRIC_STAGES}_count", "first_token"): "first_tokens",
    (f"{names.METRIC_STAGES}_sum", "queue"): "first_token_seconds",
    (f"{names.METRIC_STAGES}_sum", "prefill"): "first_token_seconds",
    (f"{names.METRIC_STAGES}_sum", "first_token"): "first_token_seconds",
}
"""Field of `Counted` of each series; the times to the first token add up."""
_CANARY: Final = {
    names.METRIC_VERIFICATION_AGE_SECONDS: "age",
    names.METRIC_VERIFICATION_TOKENS: "tokens",
    names.METRIC_VERIFICATION_DISTANCE: "distance",
    names.METRIC_VERIFICATION_LIMIT: "limit",
}
_FIELDS: Final = tuple(field.name for field in fields(Counted))
_STATES: Final = {(names.METRIC_VERIFICATION, str(state)): state for state in Verification}
_FAULTS_OF_PAIR: Final = names.METRIC_PAIR_FAULTS.encode()
_SPAN: Final = names.METRIC_PAIR_FAULT_SECONDS.encode()
_AGE: Final = names.METRIC_PAIR_AGE_SECONDS.encode()
_OF_PAIRS: Final = frozenset({_FAULTS_OF_PAIR, _SPAN, _AGE})
_MOST_FAULTS: Final = 1000.0
_WANTED: Final = _OF_PAIRS | {name.encode() for name in (*(name for name, _ in _COUNTERS), *_CANARY, *_LABELS)}


@dataclass(frozen=True, slots=True)
class TransferReading:
    """What a pod reported at one moment."""

    at: float
    counted: Counted
    canary: CanaryFacts
    pairs: tuple[PairFacts, ...] = ()

    @property
    def has_fault(self) -> bool:
        """Whether a canary has found a fault of a pair."""
        return any(pair.faults for pair in self.pairs)


class TransferExposition:
    """Takes the lines of a response of a router pod. A number that is none counts as absent."""

    def __init__(self) -> None:
        self._counted: dict[str, float] = {}
        self._canary: dict[str, float] = {}
        self._states: list[Verification] = []
        self._decode = self._parameter = ""
        self._pairs: dict[tuple[str, str], dict[bytes, float]] = {}

    def take(self, line: bytes) -> None:
        """Add a line.

        Raises:
            UnreadableError: The line is malformed.
        """
        if name_of(line) not in _WANTED:
            return
        found = sample(line)
        if math.isnan(found.value):
            return
        if found.name in _OF_PAIRS:
            self._take_pair(found)
            return
        series = _series(found)
        if (field := _COUNTERS.get(series)) is not None:
            self._counted[field] = self._counted.get(field, 0.0) + found.value
        elif (number := _CANARY.get(series[0])) is not None:
            self._canary[number] = found.value
        elif found.value == 1 and (state := _STATES.get(series)) is not None:
            self._states.append(state)
            self._decode, self._parameter = _text(found, b"decode"), _text(found, b"parameter")

    def _take_pair(self, found: Sample) -> None:
        pair = _text(found, b"parameter"), _text(found, b"decode")
        if pair in self._pairs or len(self._pairs) < MOST_PAIRS:
            self._pairs.setdefault(pair, {})[found.name] = found.value

    def reading(self, at: float, revision: str) -> TransferReading | None:
        """What the lines say; None if they are of a router that does not report the KV transfer."""
        state = self._states[0] if len(self._states) == 1 else None
        if state is None and "parameter_tokens" not in self._counted:
            return None
        canary = CanaryFacts(
            state or Verification.OFF, revision, decode=self._decode, parameter=self._parameter, **self._canary
        )
        pairs = tuple(
            PairFacts(*pair, int(min(_MOST_FAULTS, max(0.0, values[_FAULTS_OF_PAIR]))), values[_SPAN], values[_AGE])
            for pair, values in self._pairs.items()
            if values.keys() >= _OF_PAIRS
        )
        return TransferReading(at, Counted(**self._counted), canary, pairs)


def _series(found: Sample) -> _Series:
    name = found.name.decode()
    label = _LABELS.get(name)
    return name, "" if label is None else _text(found, label)


def _text(found: Sample, label: bytes) -> str:
    return found.labels.get(label, b"").decode(errors="replace")


class TransferWindow:
    """The readings of one process of a router.

    Attributes:
        latest: The latest reading.
    """

    def __init__(self, first: TransferReading) -> None:
        self.latest = first
        self._counters = CounterWindow(first.at, _counts(first))

    def add(self, reading: TransferReading) -> None:
        """Add a reading."""
        self.latest = reading
        self._counters.add(reading.at, _counts(reading))

    @property
    def since(self) -> float:
        """When the first reading of the process was taken."""
        return self._counters.since

    @property
    def seconds(self) -> float:
        """Its length."""
        return self._counters.seconds

    @property
    def counted(self) -> Counted:
        """The counts within it."""
        moved: dict[str, Any] = {
            field: None if math.isnan(count) else count
            for field, count in zip(_FIELDS, self._counters.growth, strict=True)
        }
        return Counted(**moved)


def _counts(reading: TransferReading) -> Iterator[float]:
    """The counts; NaN in place of None, since no count is NaN."""
    counts = (getattr(reading.counted, field) for field in _FIELDS)
    return (math.nan if count is None else count for count in counts)


def transfer_facts(revision: str, window: TransferWindow, others: Iterable[TransferWindow]) -> TransferFacts:
    """What the router pods of a resource report.

    All of them count the same P and D pods, so the counts are of one; but each has its own requests and canaries.

    Args:
        revision: Revision of the router pod that the counts are of.
        window: Its readings.
        others: The readings of the other router pods.
    """
    others = tuple(others)
    counted = window.counted
    parts = [counted, *(other.counted for other in others)]
    handed = [part.handed_over for part in parts if part.handed_over is not None]
    waits = [part.waiting_seconds for part in parts if part.waiting_seconds is not None]
    canaries = [window.latest.canary, *(other.latest.canary for other in others)]
    return TransferFacts(
        revision,
        min(canaries, key=_rank),
        window.seconds,
        replace(
            counted,
            waiting_seconds=min(window.seconds, sum(waits)) if waits else None,
            first_tokens=sum(part.first_tokens for part in parts),
            first_token_seconds=sum(part.first_token_seconds for part in parts),
            handed_over=sum(handed) if len(handed) == len(parts) else None,
            alone_tokens=sum(part.alone_tokens for part in parts),
            alone_cached_tokens=sum(part.alone_cached_tokens for part in parts),
        ),
        _agreed(reading.pairs for reading in (window.latest, *(other.latest for other in others))),
    )


def _agreed(reported: Iterable[Iterable[PairFacts]]) -> tuple[PairFacts, ...]:
    """The pairs over all routers. A canary of one that got through since the first fault of others shows that it works.

    An older one shows nothing any more. Of several faults, the one that is proven least counts.
    """
    found: dict[tuple[str, str], list[PairFacts]] = {}
    for pair in chain.from_iterable(reported):
        found.setdefault((pair.parameter, pair.decode), []).append(pair)
    return tuple(_least_proven(found[key]) for key in sorted(found))


def _least_proven(pairs: Sequence[PairFacts]) -> PairFacts:
    faulty = [pair for pair in pairs if pair.faults]
    if not faulty:
        return pairs[0]
    since = min(pair.seconds + pair.age for pair in faulty)
    good = [pair for pair in pairs if not pair.faults and pair.age < since]
    return min(good or faulty, key=lambda pair: (pair.faults, pair.seconds))


def _rank(canary: CanaryFacts) -> tuple[int, str, str]:
    """The position of a fault among faults, in any order of router pods. Without one, the first canary is taken."""
    if canary.state not in FAULTS:
        return len(FAULTS), "", ""
    return FAULTS.index(canary.state), canary.decode, canary.parameter
