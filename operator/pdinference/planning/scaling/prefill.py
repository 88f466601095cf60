"""How much prefill work there is, in units of pods, and how many requests come in."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pdinference.planning.scaling.signals import DRAIN_SECONDS

RECENT_SECONDS = 10
"""How far back is looked for the beginning of a burst: two scrapes."""
_SURE = 4
"""How many standard deviations of a Poisson process more than before are no accident: one look in 10,000 is."""


@dataclass(frozen=True, slots=True)
class PrefillWindow:
    """What one P pod did between two scrapes, about `WINDOW_SECONDS` apart.

    Attributes:
        seconds: Time between the two scrapes.
        prefill_seconds: Growth of `vllm:request_prefill_time_seconds_sum`.
        finished: Growth of `vllm:request_prefill_time_seconds_count`.
        arrived: Requests that came in: what finished, and by how much more are waiting and running.
        waiting: Requests waiting at the second scrape.
        running: Requests running at the second scrape.
        recent_seconds: Length of the end of the window, about `RECENT_SECONDS`.
        recent_arrived: Requests that came in then.
    """

    seconds: float
    prefill_seconds: float
    finished: float
    arrived: float
    waiting: float
    running: float
    recent_seconds: float
    recent_arrived: float

    @property
    def busy_seconds(self) -> float:
        """How long the pod worked. Requests that are prefilled together count their time twice, hence the limit."""
        if not self.finished and self.running:
            return self.seconds  # one long prompt, which says nothing about itself until it is done
        return min(self.seconds, self.prefill_seconds)


def arrival_rate(pods: Iterable[PrefillWindow]) -> float:
    """Requests a second that reach P.

    All pods are counted over the same time, although one that is new has been there for a part of it only: what it
    gets now, the others got before. When clearly more came lately than before, a burst begins, and what came lately
    counts: over the whole window it would be seen so much later.
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


def prefill_load(pods: Iterable[PrefillWindow], *, drain_seconds: float = DRAIN_SECONDS) -> float:
    """Prefill work of a role in units of pods: what arrives a second, and what it takes to work off the queue in time.

    The work of a request is what requests took lately, so nothing has to be known about model or device. What arrives
    is counted, not what is worked off: in a burst the latter ends at the number of pods.
    """
    windows = [pod for pod in pods if pod.seconds > 0]
    busy = sum(pod.busy_seconds for pod in windows)
    finished = sum(pod.finished for pod in windows)
    if not finished:
        return sum(pod.busy_seconds / pod.seconds for pod in windows)
    waiting = sum(pod.waiting for pod in windows)
    return (arrival_rate(windows) + waiting / drain_seconds) * busy / finished
