"""Readings of pods for tests."""

import math
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pdinference.loadmetrics.scraping.exposition import Exposition, Histogram, Reading
from pdinference.loadmetrics.scraping.window import TimedReading, Window
from pdinference.loadmetrics.signals import PodLoad
from pdinference.memory.observed import KvCache

START = datetime(2026, 11, 21, tzinfo=UTC)
IDLE = Reading(
    kv_usage=0.0,
    running=0.0,
    waiting=0.0,
    holding=0.0,
    cache=KvCache(100, 128),
    prompt_tokens=0.0,
    generation_tokens=0.0,
    prompt_lengths=Histogram((), 0.0, 0.0),
    answer_lengths=Histogram((), 0.0, 0.0),
    prefill=Histogram((), 0.0, 0.0),
    first_token=Histogram((), 0.0, 0.0),
    inter_token=Histogram((), 0.0, 0.0),
)


def reading(text: str | bytes) -> Reading:
    """The reading of a response of /metrics."""
    found = Exposition()
    for line in (text.encode() if isinstance(text, str) else text).split(b"\n"):
        found.take(line)
    return found.reading()


def told(**numbers: Any) -> Reading:
    """A reading of a pod that is idle but for this."""
    return replace(IDLE, **numbers)


def window(*readings: tuple[float, Reading]) -> Window:
    """Readings of a pod with their times."""
    found = Window()
    for at, reading in readings:
        found.add(TimedReading(at, START + timedelta(seconds=at), reading))
    return found


def pod(*readings: tuple[float, Reading], expected: bool = True, counted: bool = True) -> PodLoad:
    """A pod with these readings."""
    return PodLoad(window(*readings), expected=expected, counted=counted)


def lengths(total: float, count: float) -> Histogram:
    """A histogram of which only the mean matters."""
    return Histogram(((float("inf"), count),), total, count)


RECORDED = Path(__file__).parent / "recorded"


def is_sound(reading: Reading) -> bool:
    """Whether every number is finite and not negative, but for the bound of a last bucket."""

    def numbers(value: object, *, bound: bool = False) -> bool:
        if isinstance(value, tuple):
            return all(numbers(each, bound=not number) for number, each in enumerate(value))
        return value is None or (isinstance(value, int | float) and value >= 0 and (bound or math.isfinite(value)))

    return numbers(astuple(reading))
