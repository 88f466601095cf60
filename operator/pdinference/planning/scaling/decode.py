"""How much decode work there is, in units of pods.

KV-cache utilisation alone misleads. Each token that a pod generates makes it read the weights once and the KV cache in
use; so the fuller the cache, the slower every request, and the longer each holds its part of the cache. Utilisation
therefore grows slowly at first and then without bound: with an 8B model on an H200, a cache used to 80 % is 97 % of
what the pod can do, and one used to 30 % is 78 %. An HPA that divides such a sum by a target swings.

What is proportional to the load is throughput. Be `u` the utilisation, `t` the time a token takes now and `t0` in an
idle pod. Time grows in proportion to the cache in use, `t = t0 + b u`, and throughput goes with `u / t`. As a share of
that with a full cache, `(u / t) / (1 / (t0 + b))`, it is

    1 - (1 - u) t0 / t

0 in an idle pod, 1 when the cache is full, and just `u` where the cache fills before it slows the pod down.

What pods do says how many are needed only as long as they are not full, and a moment late. So what reaches P decides
how many pods come, and what the pods do keeps them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pdinference.planning.scaling.signals import DRAIN_SECONDS

BUSY_POD_CAP = 0.9
"""What a busy pod counts for at most, where it is known what arrives: enough to keep it at any target up to 90 %, and
too little to bring another. Pods that are full for a while, because they catch up, need no more of them; where that
does not end, more arrives than they can do, and waits."""


@dataclass(frozen=True, slots=True)
class DecodeWindow:
    """What one D pod did between two scrapes, about `WINDOW_SECONDS` apart.

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
        """The share of what this pod can do that it does."""
        if self.waiting:
            return 1.0
        if not self.token_seconds or idle is None:
            return self.kv_usage
        return 1 - (1 - self.kv_usage) * min(1.0, idle / self.token_seconds)


def idle_token_seconds(pods: Iterable[DecodeWindow], known: float | None = None) -> float | None:
    """The shortest time for a token that was ever seen, `known` among it: that of an idle pod, as far as is known.

    As long as no pod was idle it is too long. Then the load comes out too low, but never below the cache's utilisation.
    """
    seen = [pod.token_seconds for pod in pods if pod.token_seconds]
    return min([*seen, known] if known else seen, default=None)


def decode_load(
    pods: Iterable[DecodeWindow],
    *,
    idle: float | None,
    arrivals: float | None,
    waiting_for_prefill: float = 0,
    drain_seconds: float = DRAIN_SECONDS,
) -> float:
    """Decode work of a role in units of pods: what arrives a second, and what it takes to work off the queue in time.

    All pods are counted over the same time, although one that is new has been there for a part of it only: what it
    does now, the others did before.

    Args:
        pods: The pods that serve.
        idle: What `idle_token_seconds` found.
        arrivals: Requests a second that reach P. They reach D too, later: so D's pods start together with P's.
            None where no P pod tells.
        waiting_for_prefill: Requests that wait in P.
        drain_seconds: Within how long what waits should be worked off.
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
