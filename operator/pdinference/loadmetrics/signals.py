"""Computes one value for the HPA from the windows of a role's pods, with missing metrics treated like an HPA does.

With pod metrics, an HPA assumes a pod without metrics at 100 % of the target before a scale-down and at 0 % before a
scale-up, and does nothing if that reverses the decision
(kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, "Algorithm details"). An external metric is only a
sum, so this module applies the same rule.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from pdinference.loadmetrics.scraping.exposition import Histogram, Reading
from pdinference.loadmetrics.scraping.window import TimedReading, Window, decode_window, grown, prefill_window
from pdinference.planning.scaling.decode_load import DecodeWindow, decode_load
from pdinference.planning.scaling.kv import kv_demand
from pdinference.planning.scaling.prefill_load import PrefillWindow, arrival_rate, prefill_load
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.unknown_load import NO_POD_READY, NO_RATE_YET, NOT_READ_YET

_YOUNG_S: Final = 15.0
"""Minimum window for a scale-down, and for a scale-up by a rate. Windows are shorter after a restart of the operator or
of all pods of a role. The HPA then has no recommendations of the last minutes, so that its stabilization window would
not hold back a first reading between two requests. Rates over short windows are inaccurate."""

Known = TypeVar("Known")


class LoadUnavailableError(Exception):
    """The load is not known. `kubectl describe hpa` shows the message."""


@dataclass(frozen=True, slots=True)
class PodLoad:
    """One pod of a role.

    Attributes:
        window: Its readings.
        expected: Whether it should report metrics: it is ready, or was ready before. Other pods have no load yet.
        serves: Whether it gets requests now, or did until it stopped responding.
        counted: Whether the HPA counts it as a replica: it has the serving revision.
    """

    window: Window
    expected: bool
    counted: bool
    serves: bool = True


@dataclass(frozen=True, slots=True)
class SignalMeasurement:
    """A value for an HPA.

    Attributes:
        value: Sum over the pods.
        when: Time of the oldest reading in it.
    """

    value: float
    when: datetime


@dataclass(frozen=True, slots=True)
class Upstream:
    """Inputs of the decode load beside the work of D pods.

    Attributes:
        prefill: The P pods. Requests that wait there reach D next.
        idle_token_seconds: Baseline inter-token latency of D, in seconds.
        reached: The pods whose arrivals are those of D: P pods, or D pods where some requests go to P or D alone. None:
            the P pods.
    """

    prefill: Sequence[PodLoad] = ()
    idle_token_seconds: float | None = None
    reached: Sequence[PodLoad] | None = None


_NOTHING: Final = Upstream()
_LOADS: Final = frozenset({Signal.PREFILL_LOAD, Signal.DECODE_LOAD})


def measure(
    signal: Signal,
    pods: Sequence[PodLoad],
    *,
    target: float | None,
    now: float,
    upstream: Upstream = _NOTHING,
    answers: bool = False,
) -> SignalMeasurement:
    """The sum of a signal over the pods of a role.

    Args:
        signal: The signal.
        pods: All pods of the role that are not terminating.
        target: Target value per pod, if known.
        now: Time of the clock of the readings.
        upstream: Further inputs of the decode load.
        answers: Whether P pods answer some requests alone.

    Raises:
        LoadUnavailableError: No pod reports the signal.
    """
    known = {number: last for number, pod in enumerate(pods) if (last := pod.window.latest(now)) is not None}
    match signal:
        case Signal.PREFILL_LOAD:
            work = _known({number: prefill_window(pods[number].window, now) for number in known})
            total, reporting = prefill_load(work.values(), answers=answers), set(work)
        case Signal.DECODE_LOAD:
            decoding = _known({number: decode_window(pods[number].window, now) for number in known})
            total, reporting = _decode_load(decoding.values(), upstream, now), set(decoding)
        case _:
            amount = _AMOUNTS[signal]
            amounts = _known({number: amount(pods[number].window, last, now) for number, last in known.items()})
            total, reporting = sum(amounts.values()), set(amounts)
    if not reporting:
        raise LoadUnavailableError(_reason_unavailable(signal, pods, known, now))
    missing = sum(pod.expected and number not in reporting for number, pod in enumerate(pods))
    assumed = target if target is not None else total / len(reporting)
    enough = sum(pod.counted for pod in pods) * assumed
    if all(pods[number].window.age(now) < _YOUNG_S for number in reporting):
        total = enough if signal in _LOADS else max(total, enough)
    return SignalMeasurement(
        _cautious(total, missing, assumed, enough),
        min(last.when for number, last in known.items() if number in reporting),
    )


def misses_signals(window: Window, signals: Iterable[Signal], now: float) -> bool:
    """Whether a pod responds but lacks metrics that a signal of its role needs."""
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
    """The pods whose value is known."""
    return {number: value for number, value in windows.items() if value is not None}


def _decode_load(pods: Iterable[DecodeWindow], upstream: Upstream, now: float) -> float:
    prefill = _prefill_windows(upstream.prefill, now)
    reached = prefill if upstream.reached is None else _prefill_windows(upstream.reached, now)
    return decode_load(
        pods,
        idle=upstream.idle_token_seconds,
        arrivals=arrival_rate(reached) if reached else None,
        waiting_for_prefill=sum(window.waiting for window in prefill),
    )


def _prefill_windows(pods: Sequence[PodLoad], now: float) -> list[PrefillWindow]:
    windows = (prefill_window(pod.window, now) for pod in pods)
    return [window for window in windows if window is not None]


def _cautious(total: float, missing: int, assumed: float, enough: float) -> float:
    """The total with missing pods: at target if that prevents a scale-down, at 0 if it would cause a scale-up."""
    if not missing or total >= enough:
        return total
    return min(total + missing * assumed, enough)


def _reason_unavailable(signal: Signal, pods: Sequence[PodLoad], responding: Iterable[int], now: float) -> str:
    if ages := [pods[number].window.age(now) for number in responding]:
        count = f"{len(ages)} of {len(pods)} pods respond"
        young = max(ages) < _YOUNG_S
        return f"{count}; {signal} {NO_RATE_YET}" if young else f"{count}, but do not report {signal}"
    if any(pod.expected and pod.window.silent for pod in pods):
        return "no pod responds on its metrics port; check whether a NetworkPolicy blocks the operator"
    return NOT_READ_YET if any(pod.expected and pod.serves for pod in pods) else NO_POD_READY


def _kv_usage(_: Window, last: TimedReading, __: float) -> float | None:
    return last.reading.kv_usage


def _kv_demand(window: Window, last: TimedReading, now: float) -> float | None:
    """KV cache in use or needed by waiting requests without blocks, in units of a pod's KV cache."""
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
    """Mean over the requests that finished within the window, or else since the start of the process."""
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
