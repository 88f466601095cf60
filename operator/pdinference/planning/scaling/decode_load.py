"""Decode load, in units of pods.

KV-cache utilisation alone is not proportional to the load. For each token a pod reads the weights once and the KV cache
in use. So a fuller cache slows every request, and each request occupies its part of the cache for longer. Utilisation
grows slowly at first and then without bound. With an 8B model on an H200, 80 % of the cache in use is 97 % of the pod's
throughput, and 30 % is 78 %. An HPA that divides such a sum by a target oscillates.

Throughput is proportional to the load. Let `u` be the utilisation, `t` the current inter-token latency, and `t0`
that of an idle pod. Latency grows linearly with the cache in use, `t = t0 + b u`. Throughput is proportional to
`u / t`. As a share of the throughput with a full cache, `(u / t) / (1 / (t0 + b))`, the load is

    1 - (1 - u) t0 / t

It is 0 in an idle pod, 1 when the cache is full, and `u` where the cache fills before it slows the pod down.

The throughput of pods shows the demand only with a delay, and only until they are full. So the requests that reach P
cause scale-up. Utilisation of decode pods prevents scale-down; it never causes scale-up.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pdinference.planning.scaling.signals import DRAIN_SECONDS

BUSY_POD_CAP = 0.9
"""Cap on the load of a busy pod while the arrival rate is known. It prevents scale-down at any target up to 90 % and
causes no scale-up. Pods that are full for a while because they catch up need no additional pods. If they stay full,
requests queue, and the queue causes scale-up."""


@dataclass(frozen=True, slots=True)
class DecodeWindow:
    """The work of one D pod between two scrapes, about `WINDOW_SECONDS` apart.

    Attributes:
        seconds: Time between the two scrapes.
        kv_usage: `vllm:kv_cache_usage_perc`, 0 to 1, as a mean of the scrapes in between.
        token_seconds: Mean inter-token latency: growth of `vllm:inter_token_latency_seconds_sum` by that of `_count`;
            0 when there was none.
        generated: Growth of `vllm:generation_tokens_total`.
        finished: Growth of `vllm:request_generation_tokens_count`.
        finished_tokens: Growth of `vllm:request_generation_tokens_sum`.
        waiting: Requests waiting at the second scrape.
    """

    seconds: float
    kv_usage: float
    token_seconds: float
    generated: float
    finished: float
    finished_tokens: float
    waiting: float

    def load(self, idle: float | None) -> float:
        """The load of this pod as a share of its highest throughput."""
        if self.waiting:
            return 1.0
        if not self.token_seconds or idle is None:
            return self.kv_usage
        return 1 - (1 - self.kv_usage) * min(1.0, idle / self.token_seconds)


def decode_load(
    pods: Iterable[DecodeWindow],
    *,
    idle: float | None,
    arrivals: float | None,
    waiting_for_prefill: float = 0,
    drain_seconds: float = DRAIN_SECONDS,
) -> float:
    """Decode load of a role in units of pods: for the arriving requests, and to drain the queue in time.

    All pods are averaged over the same time, although a new pod has existed for a part of it only: its work was done by
    the other pods before.

    Args:
        pods: The pods that serve.
        idle: The lowest inter-token latency that was observed, in seconds: the best estimate for an idle pod. If no pod
            was ever idle, it is too high. Then the load is underestimated, but never below the cache's utilisation.
            None if unknown.
        arrivals: Requests a second that reach P. They reach D later, so D scales up together with P. None when no P
            pod reports its load.
        waiting_for_prefill: Requests that wait in P.
        drain_seconds: Time in which the queue should drain.
    """
    windows = [pod for pod in pods if pod.seconds > 0]
    seconds = max((pod.seconds for pod in windows), default=1.0)
    generated = sum(pod.generated for pod in windows)
    finished = sum(pod.finished for pod in windows)
    if not generated or not finished or arrivals is None:
        return sum(pod.load(idle) * pod.seconds for pod in windows) / seconds
    served = sum(min(BUSY_POD_CAP, pod.load(idle)) * pod.seconds for pod in windows) / seconds
    seconds_per_token = sum(pod.load(idle) * pod.seconds for pod in windows) / generated
    each = seconds_per_token * sum(pod.finished_tokens for pod in windows) / finished
    waiting = sum(pod.waiting for pod in windows) + waiting_for_prefill
    return max(served, arrivals * each) + waiting * each / drain_seconds
