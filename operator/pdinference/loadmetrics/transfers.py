"""What a router pod reports of the KV transfer, and its counts over a window. The numbers of pods are untrusted."""

import math
from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from pdinference.api import names
from pdinference.api.names import KvSource, TransferResult, Verification
from pdinference.loadmetrics.scraping.text_format import Sample, name_of, sample
from pdinference.planning.transfer import FAULTS, WINDOW_S, Canary, Counted, TransferFacts

_SHORTEST_S: Final = 25.0
"""Least time between two readings that are kept; routers of a resource with scaleToZero are read every second."""
_LONGEST_S: Final = 90.0
"""Longer gaps restart the window."""
_MOST: Final = 16
"""Maximum number of readings of a window."""

_Series = tuple[str, str]
"""Name and value of the label, if it has one."""
_LABELS: Final = {
    names.METRIC_KV_PROMPT_TOKENS: b"source",
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
    (names.METRIC_DECODE_WAIT, ""): "waiting_seconds",
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
_WANTED: Final = frozenset(name.encode() for name in (*(name for name, _ in _COUNTERS), *_CANARY, *_LABELS))


@dataclass(frozen=True, slots=True)
class TransferReading:
    """What a pod reported at one moment."""

    at: float
    counted: Counted
    canary: Canary


class TransferExposition:
    """Takes the lines of a response of a router pod. A number that is none counts as absent."""

    def __init__(self) -> None:
        self._counted: dict[str, float] = {}
        self._canary: dict[str, float] = {}
        self._states: list[Verification] = []

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
        series = _series(found)
        if (field := _COUNTERS.get(series)) is not None:
            self._counted[field] = self._counted.get(field, 0.0) + found.value
        elif (number := _CANARY.get(series[0])) is not None:
            self._canary[number] = found.value
        elif found.value == 1 and (state := _STATES.get(series)) is not None:
            self._states.append(state)

    def reading(self, at: float, revision: str) -> TransferReading | None:
        """What the lines say; None if they are of a router that does not report the KV transfer."""
        state = self._states[0] if len(self._states) == 1 else None
        if state is None and "parameter_tokens" not in self._counted:
            return None
        canary = Canary(state or Verification.OFF, revision, **self._canary)
        return TransferReading(at, Counted(**self._counted), canary)


def _series(found: Sample) -> _Series:
    name = found.name.decode()
    label = _LABELS.get(name)
    return name, "" if label is None else found.labels.get(label, b"").decode(errors="replace")


class TransferWindow:
    """The readings of one process of a router, from the newest back to one that is `WINDOW_S` older.

    The readings are arrays of the time and the fields of `Counted`, which take a fifth of the memory of objects.

    Attributes:
        since: When the first reading of the process was taken.
        latest: The latest reading.
    """

    def __init__(self, first: TransferReading) -> None:
        self.since, self.latest = first.at, first
        self._readings = deque([_packed(first)], maxlen=_MOST)

    def add(self, reading: TransferReading) -> None:
        """Add a reading. If a counter decreased or vanished, it is of a new process."""
        gap = reading.at - self._readings[-1][0]
        if gap > _LONGEST_S or _has_restarted(self.latest.counted, reading.counted):
            self._restart(reading)
            return
        self.latest = reading
        if gap < _SHORTEST_S:
            return
        self._readings.append(_packed(reading))
        while len(self._readings) > 2 and self._readings[1][0] <= reading.at - WINDOW_S:
            self._readings.popleft()

    @property
    def seconds(self) -> float:
        """Its length."""
        return self._readings[-1][0] - self._readings[0][0]

    @property
    def counted(self) -> Counted:
        """The counts within it. A counter that appeared within it began at 0."""
        _, *first = self._readings[0]
        _, *last = self._readings[-1]
        moved: dict[str, Any] = {
            field: None if math.isnan(now) else now - (0.0 if math.isnan(before) else before)
            for field, before, now in zip(_FIELDS, first, last, strict=True)
        }
        return Counted(**moved)

    def _restart(self, first: TransferReading) -> None:
        self.since, self.latest = first.at, first
        self._readings.clear()
        self._readings.append(_packed(first))


def _packed(reading: TransferReading) -> "array[float]":
    """The time and the counts; NaN in place of None, since no count is NaN."""
    counts = (getattr(reading.counted, field) for field in _FIELDS)
    return array("d", (reading.at, *(math.nan if count is None else count for count in counts)))


def _has_restarted(before: Counted, now: Counted) -> bool:
    pairs = ((getattr(before, field), getattr(now, field)) for field in _FIELDS)
    return any(old is not None and (new is None or new < old) for old, new in pairs)


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
        ),
    )


def _rank(canary: Canary) -> int:
    """The position of a fault among faults. Of canaries without one, the first is taken."""
    return FAULTS.index(canary.state) if canary.state in FAULTS else len(FAULTS)
