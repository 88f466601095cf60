"""From the windows of a role's pods to one number for the HPA, and what to do about pods that do not tell.

An HPA that reads metrics of pods itself takes a pod whose metrics are missing for used to 100 % of the target when that
speaks against scaling down, and to 0 % when it speaks against scaling up; and it does nothing if that turns the
decision round (kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, "Algorithm details"). An external
metric is a mere sum, so the same is done here, where the pods are known.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from pdinference.loadmetrics.scraping.exposition import Histogram, Reading
from pdinference.loadmetrics.scraping.window import TimedReading, Window, decode_window, grown, prefill_window
from pdinference.planning.scaling.decode import DecodeWindow, decode_load
from pdinference.planning.scaling.kv import kv_demand
from pdinference.planning.scaling.prefill import arrival_rate, prefill_load
from pdinference.planning.scaling.signals import Signal

_YOUNG_S: Final = 15.0
"""Rates over less than that are rough: they may keep pods, but bring none. So long are all rates after a restart of the
operator, and those of a role after its pods have come for the first time or have all restarted."""

Known = TypeVar("Known")


class LoadUnavailableError(Exception):
    """The load is not known; the message says why, for `kubectl describe hpa`."""


@dataclass(frozen=True, slots=True)
class PodLoad:
    """One pod of a role.

    Attributes:
        window: What it reading.
        expected: Whether it ought to tell its load: it is ready, or was before it fell silent. A pod that never was has
            no load yet.
        counted: Whether it is one of the pods that the HPA counts: of the revision that it follows.
    """

    window: Window
    expected: bool
    counted: bool


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number for an HPA.

    Attributes:
        value: Sum over the pods.
        when: When the oldest part of it was read.
    """

    value: float
    when: datetime


@dataclass(frozen=True, slots=True)
class Upstream:
    """What D pods cannot tell of their own work.

    Attributes:
        prefill: The P pods: what reaches them reaches D next.
        idle_token_seconds: The shortest time that a D pod ever took for a token.
    """

    prefill: Sequence[PodLoad] = ()
    idle_token_seconds: float | None = None


_NOTHING: Final = Upstream()
_LOADS: Final = frozenset({Signal.PREFILL_LOAD, Signal.DECODE_LOAD})


def measure(
    signal: Signal, pods: Sequence[PodLoad], *, target: float | None, now: float, upstream: Upstream = _NOTHING
) -> Measurement:
    """The sum of a signal over the pods of a role.

    Args:
        signal: What to sum.
        pods: All pods of the role that are not about to go.
        target: How much of the signal a pod is to bear, if that is known.
        now: By the clock that dates the readings.
        upstream: What else the load of D depends on.

    Raises:
        LoadUnavailableError: No pod tells.
    """
    known = {number: last for number, pod in enumerate(pods) if (last := pod.window.latest(now)) is not None}
    match signal:
        case Signal.PREFILL_LOAD:
            work = _known({number: prefill_window(pods[number].window, now) for number in known})
            total, reporting = prefill_load(work.values()), set(work)
        case Signal.DECODE_LOAD:
            decoding = _known({number: decode_window(pods[number].window, now) for number in known})
            total, reporting = _decode_load(decoding.values(), upstream, now), set(decoding)
        case _:
            amount = _AMOUNTS[signal]
            amounts = _known({number: amount(pods[number].window, last, now) for number, last in known.items()})
            total, reporting = sum(amounts.values()), set(amounts)
    if not reporting:
        raise LoadUnavailableError(_reason_unavailable(signal, pods, responding=len(known)))
    missing = sum(pod.expected and number not in reporting for number, pod in enumerate(pods))
    assumed = target if target is not None else total / len(reporting)
    enough = sum(pod.counted for pod in pods) * assumed
    if signal in _LOADS and all(pods[number].window.age(now) < _YOUNG_S for number in reporting):
        total = min(total, enough)
    return Measurement(
        _cautious(total, missing, assumed, enough),
        min(last.when for number, last in known.items() if number in reporting),
    )


def misses_signals(window: Window, signals: Iterable[Signal], now: float) -> bool:
    """Whether a pod answers, but misses_signals what one of its role's signals is computed from."""
    if window.latest(now) is None or window.age(now) < _YOUNG_S:
        return False
    pod = PodLoad(window, expected=True, counted=True)
    return any(_is_unavailable(signal, pod, now) for signal in signals)


def _is_unavailable(signal: Signal, pod: PodLoad, now: float) -> bool:
    try:
        measure(signal, [pod], target=None, now=now)
    except LoadUnavailableError:
        return True
    return False


def _known(windows: Mapping[int, Known | None]) -> dict[int, Known]:
    """Of the pods that tell this signal."""
    return {number: value for number, value in windows.items() if value is not None}


def _decode_load(pods: Iterable[DecodeWindow], upstream: Upstream, now: float) -> float:
    windows = (prefill_window(pod.window, now) for pod in upstream.prefill)
    prefill = [window for window in windows if window is not None]
    return decode_load(
        pods,
        idle=upstream.idle_token_seconds,
        arrivals=arrival_rate(prefill) if prefill else None,
        waiting_for_prefill=sum(window.waiting for window in prefill),
    )


def _cautious(total: float, missing: int, assumed: float, enough: float) -> float:
    """With missing pods: at target where that keeps pods, at nothing where it would bring more."""
    if not missing or total >= enough:
        return total
    return min(total + missing * assumed, enough)


def _reason_unavailable(signal: Signal, pods: Sequence[PodLoad], *, responding: int) -> str:
    if responding:
        return f"{responding} of {len(pods)} pods answer, but tell no {signal} yet"
    if any(pod.expected for pod in pods):
        return "no pod answers the operator on its metrics port; a NetworkPolicy of your own may be in the way"
    return "no pod serves yet"


def _kv_usage(_: Window, last: TimedReading, __: float) -> float | None:
    return last.reading.kv_usage


def _kv_demand(window: Window, last: TimedReading, now: float) -> float | None:
    """Used, and what requests that wait without blocks of their own will need, in caches of a pod."""
    reading = last.reading
    if reading.kv_usage is None or reading.waiting is None or reading.cache is None:
        return None
    prompts = _mean(window, now, lambda reading: reading.prompt_lengths) or 0.0
    answers = _mean(window, now, lambda reading: reading.answer_lengths) or 0.0
    return kv_demand(
        usage=reading.kv_usage,
        queued=reading.waiting - reading.holding,
        running=reading.running or 0.0,
        tokens=reading.cache.tokens,
        usual=prompts + answers,
    )


def _queued_prompt_tokens(window: Window, last: TimedReading, now: float) -> float | None:
    reading = last.reading
    if reading.waiting is None:
        return None
    queued = max(0.0, reading.waiting - reading.holding)
    length = _mean(window, now, lambda reading: reading.prompt_lengths)
    if length is None:
        return None if queued else 0.0
    return queued * length


def _mean(window: Window, now: float, of: Callable[[Reading], Histogram | None]) -> float | None:
    """Mean over the requests that finished within the window, or, if none did, since the process started."""
    span = window.span(now)
    lately = grown(of(span[1].reading), of(span[0].reading)) if span is not None else None
    last = window.latest(now)
    ever = of(last.reading) if last is not None else None
    for histogram in (lately, ever):
        if histogram is not None and histogram.count > 0:
            return histogram.total / histogram.count
    return None


def _rate(counter: Callable[[Reading], float | None]) -> Callable[[Window, TimedReading, float], float | None]:
    def amount(window: Window, _: TimedReading, now: float) -> float | None:
        span = window.span(now)
        if span is None:
            return None
        first, last = span
        old, new = counter(first.reading), counter(last.reading)
        return None if old is None or new is None else (new - old) / (last.at - first.at)

    return amount


_AMOUNTS: Final[Mapping[Signal, Callable[[Window, TimedReading, float], float | None]]] = {
    Signal.KV_DEMAND: _kv_demand,
    Signal.KV_USAGE: _kv_usage,
    Signal.WAITING_REQUESTS: lambda _, last, __: last.reading.waiting,
    Signal.RUNNING_REQUESTS: lambda _, last, __: last.reading.running,
    Signal.QUEUED_PROMPT_TOKENS: _queued_prompt_tokens,
    Signal.PROMPT_TOKENS_PER_SECOND: _rate(lambda reading: reading.prompt_tokens),
    Signal.GENERATION_TOKENS_PER_SECOND: _rate(lambda reading: reading.generation_tokens),
}
