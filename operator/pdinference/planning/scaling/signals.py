"""The scaling signals: their names, their units, and those that need arithmetic.

A signal is a sum over the serving pods of one role of one PDInference, so that an HPA with an AverageValue computes
ceil(sum / target), whatever number of pods there is at the moment.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Signal(StrEnum):
    """Names of the metrics that the operator's metrics API serves for each role."""

    PREFILL_LOAD = "pdinference_prefill_load"
    """Prefill work that arrives and waits, in pods that it keeps busy; can exceed the pods there are."""
    DECODE_LOAD = "pdinference_decode_load"
    """Decode work that arrives and waits, in pods that it keeps busy; can exceed the pods there are."""
    KV_DEMAND = "pdinference_kv_demand"
    """KV cache used and still needed by waiting requests, in pods' KV caches; can exceed the pods there are."""
    KV_USAGE = "pdinference_kv_usage"
    """KV cache used, 0 to 1 for each pod."""
    WAITING_REQUESTS = "pdinference_waiting_requests"
    """Requests that wait in vLLM."""
    RUNNING_REQUESTS = "pdinference_running_requests"
    """Requests that vLLM works on."""
    QUEUED_PROMPT_TOKENS = "pdinference_queued_prompt_tokens"
    """Prompt tokens of waiting requests."""
    PROMPT_TOKENS_PER_SECOND = "pdinference_prompt_tokens_per_second"
    """Prompt tokens worked off."""
    GENERATION_TOKENS_PER_SECOND = "pdinference_generation_tokens_per_second"
    """Tokens generated."""


WINDOW_SECONDS = 30
"""Over how long rates are taken: long enough for some requests to finish, short enough to notice a burst."""
DRAIN_SECONDS = 900
"""Within how long the pods asked for would work off what waits. Long: new pods come after a minute or more, and what
they find waiting is gone soon after, while pods that are asked for to hurry it stay for minutes."""


@dataclass(frozen=True, slots=True)
class PrefillWindow:
    """What one P pod did between two scrapes, about `WINDOW_SECONDS` apart.

    Attributes:
        seconds: Time between the two scrapes.
        prefill_seconds: Growth of `vllm:request_prefill_time_seconds_sum`.
        finished: Growth of `vllm:request_prefill_time_seconds_count`.
        present_before: Requests waiting and running at the first scrape.
        waiting: Requests waiting at the second scrape.
        running: Requests running at the second scrape.
    """

    seconds: float
    prefill_seconds: float
    finished: float
    present_before: float
    waiting: float
    running: float

    @property
    def busy_seconds(self) -> float:
        """How long the pod worked. Requests that are prefilled together count their time twice, hence the limit."""
        if not self.finished and self.running:
            return self.seconds  # one long prompt, which says nothing about itself until it is done
        return min(self.seconds, self.prefill_seconds)

    @property
    def arrived(self) -> float:
        """Requests that came in."""
        return max(0.0, self.finished + self.waiting + self.running - self.present_before)


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
    each = busy / finished
    arriving = sum(pod.arrived / pod.seconds for pod in windows) * each
    return arriving + sum(pod.waiting for pod in windows) * each / drain_seconds
