"""Ends requests whose KV cache does not get from P to D, before P's lease on it ends.

A D engine waits for KV cache without a limit, and P releases it 30 s after the last message from D
(`kv_lease_duration`). What D reads after that may belong to another prompt
(vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py).

Tests: tests/router/test_lease.py, tests/router/test_failures.py
"""

import asyncio
from typing import Final

from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router.failure_reason import FailureReason
from pdinference.router.pod import Pod, UnderWay
from pdinference.router.pods import Pods
from pdinference.router.steps import Steps, read_progress

_LOOKS: Final = 20
"""Looks within the time that KV cache may take. A request that waits for less than one costs nothing."""
_READINGS: Final = 10
"""Readings of D's steps within it."""


class LeaseGuard:
    """Guards each D pod by itself: no other pod keeps it waiting.

    Args:
        pods: The pods.
        share: Limits of the reading of their metrics.
        transfer: Seconds that the KV cache may take from P to D while D does nothing else, or answers later requests.
    """

    def __init__(self, pods: Pods, share: Share, *, transfer: float) -> None:
        self._pods = pods
        self._share = share
        self._transfer = transfer
        self._look = transfer / _LOOKS
        self._guarded: set[Pod] = set()

    async def forever(self) -> None:
        """Guard until cancelled."""
        async with asyncio.TaskGroup() as guards:
            while True:
                for pod in self._pods:
                    if pod not in self._guarded and self._waiting(pod):
                        self._guarded.add(pod)
                        guards.create_task(self._guard(pod))
                await asyncio.sleep(self._look)

    async def _guard(self, pod: Pod) -> None:
        """Guard a D pod until none of its requests waits for long."""
        now = asyncio.get_running_loop().time
        steps = Steps()
        while waiting := self._waiting(pod):
            began = now()
            if began >= next_reading(steps, min(request.began_at for request in waiting), self._transfer):
                found = await read_progress(pod, self._share)
                # A prompt of its own that D computes in parts is no step, and the KV cache waits for it.
                computes = pod.queue.ahead(now()) > 0
                steps.read(found if found is None or computes else found.steps, began, now())
            for request in self._waiting(pod):  # some have had their first byte during the reading
                if is_lost(request, steps, pod.answered_at, now(), self._transfer):
                    request.abort(FailureReason.NO_KV_CACHE)
            await asyncio.sleep(self._look)
        self._guarded.discard(pod)

    def _waiting(self, pod: Pod) -> list[UnderWay]:
        """The requests that have waited for their KV cache."""
        before = asyncio.get_running_loop().time() - self._look
        return [one for one in pod.under_way if one.waits_for_kv_cache and one.began_at <= before]


def next_reading(steps: Steps, began: float, transfer: float) -> float:
    """When D's steps have to be read: now and then, and when the reading may show that a transfer is lost.

    Args:
        steps: D's steps.
        began: When the first of the requests began that wait for KV cache.
        transfer: Seconds that it may take.
    """
    return min(steps.tried_at + transfer / _READINGS, max(steps.since, began) + transfer)


def is_lost(request: UnderWay, steps: Steps, answered_at: float, now: float, transfer: float) -> bool:
    """Whether the KV cache of a request does not get to D.

    Args:
        request: The request.
        steps: D's steps.
        answered_at: When the last one of the streams was sent that have had their first byte from D.
        now: The time.
        transfer: Seconds that the KV cache may take while D does nothing else, or answers later requests.
    """
    overtaken = request.stream and answered_at > request.began_at
    return now - request.began_at >= transfer and (overtaken or steps.without(request.began_at) >= transfer)
