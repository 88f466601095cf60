"""Prefill load in units of pods, and the arrival rate of requests."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pdinference.planning.scaling.signals import DRAIN_SECONDS

RECENT_SECONDS = 10
"""The recent part of the window, in which a burst is detected: two scrapes."""
_SURE = 4
"""Standard deviations of a Poisson process above which more arrivals are a burst: 1 false alarm in 10,000."""


@dataclass(frozen=True, slots=True)
class PrefillWindow:
    """The work of one P pod between two scrapes, about `WINDOW_SECONDS` apart.

    Attributes:
        seconds: Time between the two scrapes.
        prefill_seconds: Growth of `vllm:request_prefill_time_seconds_sum`.
        finished: Growth of `vllm:request_prefill_time_seconds_count`.
        arrived: Requests that arrived: those that finished, plus the growth of waiting and running ones.
        waiting: Requests waiting at the second scrape.
        running: Requests running at the second scrape.
        recent_seconds: Length of the recent part of the window, about `RECENT_SECONDS`.
        recent_arrived: Requests that arrived in the recent part.
    """

    seconds: float
    prefill_seconds: float
    finished: float
    arrived: float
    waiting: float
    running: float
    recent_seconds: float
    recent_arrived: float

    def busy_seconds(self, *, answers: bool) -> float:
        """How long the pod was busy. Requests prefilled in one batch count their time twice, hence the limit.

        Args:
            answers: Whether P pods answer requests, too. One that runs is then no prompt under way.
        """
        if not self.finished and self.running and not answers:
            return self.seconds  # one long prompt, which vLLM counts only when it is finished
        return min(self.seconds, self.prefill_seconds)


def arrival_rate(pods: Iterable[PrefillWindow]) -> float:
    """Requests a second that reach P.

    All pods are averaged over the same time, although a new pod has existed for a part of it only: its requests went to
    the other pods before. If clearly more requests arrived recently than before, a burst has begun. Then only the
    recent part counts, because the whole window would show the burst later.
    """
    windows = [pod for pod in pods if pod.seconds > 0]
    if not windows:
        return 0.0
    seconds, recent_seconds = max(pod.seconds for pod in windows), max(pod.recent_seconds for pod in windows)
    arrived, late = sum(pod.arrived for pod in windows), sum(pod.recent_arrived for pod in windows)
    before = seconds - recent_seconds
    if before >= RECENT_SECONDS:
        expected = max(0.0, arrived - late) / before * recent_seconds
        if late > expected + _SURE * math.sqrt(max(expected, 1.0)):
            return late / recent_seconds
    return arrived / seconds


def prefill_load(
    pods: Iterable[PrefillWindow], *, drain_seconds: float = DRAIN_SECONDS, answers: bool = False
) -> float:
    """Prefill load of a role in units of pods: for the arriving requests, and to drain the queue in time.

    The cost of a request is the mean of recently finished ones, so it does not depend on facts of model or device.
    Arrivals count, not finished requests, because in a burst the pods limit the latter.

    Args:
        pods: The pods.
        drain_seconds: Time in which the queue should be gone.
        answers: Whether the pods answer requests, too (`router.disaggregation: Adaptive`).
    """
    windows = [pod for pod in pods if pod.seconds > 0]
    busy = [pod.busy_seconds(answers=answers) for pod in windows]
    finished = sum(pod.finished for pod in windows)
    if not finished:
        return sum(seconds / pod.seconds for seconds, pod in zip(busy, windows, strict=True))
    waiting = sum(pod.waiting for pod in windows)
    return (arrival_rate(windows) + waiting / drain_seconds) * sum(busy) / finished
