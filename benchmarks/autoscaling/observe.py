"""What a scaler gets to see: the pods' metrics, read every few seconds, and the signals made of them."""

from collections import deque
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.autoscaling.fleet import Fleet
from benchmarks.autoscaling.pods import DecodePod, PrefillPod
from pdinference.planning.scaling.decode_load import DecodeWindow, decode_load, idle_token_seconds
from pdinference.planning.scaling.kv import kv_demand
from pdinference.planning.scaling.prefill_load import RECENT_SECONDS, PrefillWindow, arrival_rate, prefill_load
from pdinference.planning.scaling.signals import WINDOW_SECONDS, Signal

IN_FLIGHT_SECONDS = "in-flight prompt tokens / measured rate"
"""What llm-d's templates scale prefill by."""


@dataclass(frozen=True, slots=True)
class _Prefill:
    """The counters and gauges of one P pod at one scrape."""

    at: float
    prefill_seconds: float
    finished: int
    come: int


@dataclass(frozen=True, slots=True)
class _Decode:
    """The counters and gauges of one D pod at one scrape."""

    at: float
    kv_usage: float
    token_seconds: float
    generated: float
    finished: int
    finished_tokens: int
    finished_prompts: int


_S = TypeVar("_S", _Prefill, _Decode)


class Scraper:
    """Reads the pods and keeps the latest values; between two scrapes everybody sees old ones."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._prefill: dict[PrefillPod, deque[_Prefill]] = {}
        self._decode: dict[DecodePod, deque[_Decode]] = {}
        self._idle: float | None = None
        self.metrics: dict[str, float] = {}

    def scrape(self) -> None:
        """Read every pod that serves."""
        p = [pod for pod in self._fleet.prefill if pod.ready]
        d = [pod for pod in self._fleet.decode if pod.ready]
        prefill = [self._prefill_window(pod) for pod in p]
        decode = [self._decode_window(pod) for pod in d]
        self._idle = idle_token_seconds(decode, self._idle)
        used = sum(pod.kv_tokens() for pod in d) / self._fleet.cache_tokens
        self.metrics = {
            Signal.PREFILL_LOAD: prefill_load(prefill),
            Signal.DECODE_LOAD: decode_load(
                decode,
                idle=self._idle,
                arrivals=arrival_rate(prefill),
                waiting_for_prefill=sum(window.waiting for window in prefill),
            ),
            Signal.KV_USAGE: used,
            Signal.KV_DEMAND: sum(self._kv_demand(pod) for pod in d),
            IN_FLIGHT_SECONDS: sum(pod.work_seconds for pod in p),
        }

    def _prefill_window(self, pod: PrefillPod) -> PrefillWindow:
        seen = _Prefill(self._fleet.env.now, pod.prefill_seconds, pod.finished, pod.finished + pod.present)
        window = _window(self._prefill.setdefault(pod, deque()), seen)
        first = window[0]
        late = next((scrape for scrape in reversed(window) if scrape.at <= seen.at - RECENT_SECONDS), first)
        return PrefillWindow(
            seconds=seen.at - first.at,
            prefill_seconds=seen.prefill_seconds - first.prefill_seconds,
            finished=seen.finished - first.finished,
            arrived=seen.come - first.come,
            waiting=pod.waiting,
            running=pod.running,
            recent_seconds=seen.at - late.at,
            recent_arrived=seen.come - late.come,
        )

    def _decode_window(self, pod: DecodePod) -> DecodeWindow:
        usage = pod.kv_tokens() / self._fleet.cache_tokens
        seen = _Decode(
            self._fleet.env.now,
            usage,
            pod.token_seconds,
            pod.generated,
            pod.finished,
            pod.finished_tokens,
            pod.finished_prompts,
        )
        window = _window(self._decode.setdefault(pod, deque()), seen)
        first = window[0]
        generated = seen.generated - first.generated
        return DecodeWindow(
            seconds=seen.at - first.at,
            kv_usage=sum(scrape.kv_usage for scrape in window) / len(window),
            token_seconds=(seen.token_seconds - first.token_seconds) / generated if generated else 0.0,
            generated=generated,
            finished=seen.finished - first.finished,
            finished_tokens=seen.finished_tokens - first.finished_tokens,
            waiting=len(pod.waiting),
        )

    def _kv_demand(self, pod: DecodePod) -> float:
        window = self._decode[pod]
        first, last = window[0], window[-1]
        finished = last.finished - first.finished
        tokens = last.finished_tokens + last.finished_prompts
        if finished:
            tokens -= first.finished_tokens + first.finished_prompts
        else:  # as the operator does: since the pod's start, where nothing finished within the window
            finished = last.finished
        return kv_demand(
            usage=last.kv_usage,
            queued=len(pod.waiting),
            running=pod.running,
            tokens=self._fleet.cache_tokens,
            usual=tokens / finished if finished else 0.0,
        )


def _window(history: deque[_S], seen: _S) -> deque[_S]:
    """The scrapes of the last seconds, with the present one."""
    history.append(seen)
    while seen.at - history[0].at > WINDOW_SECONDS:
        history.popleft()
    return history
