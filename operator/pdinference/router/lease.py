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
from pdinference.router.links import Links
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
        links: Those between them that have failed.
        share: Limits of the reading of their metrics.
        transfer: Seconds that the KV cache may take from P to D while D does nothing else, or answers later requests.
    """

    def __init__(self, pods: Pods, links: Links, share: Share, *, transfer: float) -> None:
        self._pods = pods
        self._links = links
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
        steps, moving, queued = Steps(), Steps(), Steps()
        while waiting := self._waiting(pod):
            began = now()
            if began >= next_reading(steps, min(request.began_at for request in waiting), self._transfer):
                found = await read_progress(pod, self._share, all_ranks=not pod.all_placed)
                # A prompt of its own that D computes in parts is no step, and the KV cache waits for it.
                computes = pod.queue.ahead(now()) > 0
                steps.read(found if found is None or computes else found.steps, began, now())
                moving.read(None if found is None else found.deferred > 0, began, now())
                queued.read(None if found is None or found.queued is None else found.queued > 0, began, now())
            for request in self._waiting(pod):  # some have had their first byte during the reading
                to_come = still_to_come(request, moving, broken=self._is_broken(request, pod))
                overtaken = is_overtaken(request, queued, pod.answered_at, self._transfer)
                if is_lost(request, steps, now(), self._transfer, to_come=to_come, overtaken=overtaken):
                    request.abort(FailureReason.NO_KV_CACHE)
            await asyncio.sleep(self._look)
        self._guarded.discard(pod)

    def _is_broken(self, request: UnderWay, pod: Pod) -> bool:
        return request.reads_from is not None and self._links.has_failed(request.reads_from, pod)

    def _waiting(self, pod: Pod) -> list[UnderWay]:
        """The requests that have waited for their KV cache."""
        before = asyncio.get_running_loop().time() - self._look
        return [one for one in pod.under_way if one.reads_from is not None and one.began_at <= before]


def next_reading(steps: Steps, began: float, transfer: float) -> float:
    """When D's steps have to be read: now and then, and when the reading may show that a transfer is lost.

    Args:
        steps: D's steps.
        began: When the first of the requests began that wait for KV cache.
        transfer: Seconds that it may take.
    """
    return min(steps.tried_at + transfer / _READINGS, max(steps.since, began) + transfer)


def still_to_come(request: UnderWay, moving: Steps, *, broken: bool) -> float:
    """Seconds for which D has said that KV cache is still to come, where the request's own link is broken.

    Nothing else shows whether D has the KV cache of a request that is no stream. It may be that of another one: then
    D computes this prompt for nothing.

    Args:
        request: The request.
        moving: Whether D waits for KV cache: True or False in place of the steps.
        broken: Whether KV cache has not got over the link of the request, and none has since.
    """
    return moving.without(request.began_at) if broken and not request.stream and moving.last is True else 0.0


def is_overtaken(request: UnderWay, queued: Steps, answered_at: float, transfer: float) -> bool:
    """Whether streams had their first byte that vLLM should have taken later than this one.

    Those with a better place (`fair_shares`) may go first while requests wait for room, and no longer: then vLLM reads
    the KV cache of all.

    Args:
        request: The request.
        queued: Whether requests wait for room at D: True or False in place of the steps.
        answered_at: When the last one of the streams was sent that have had their first byte from D.
        transfer: Seconds that the KV cache may take.
    """
    if not request.stream:
        return False
    if not request.place:
        return answered_at > request.began_at
    has_room = queued.last is False and queued.without(request.began_at) >= transfer
    return request.overtaken or (has_room and answered_at > max(request.began_at, queued.since))


def is_lost(
    request: UnderWay, steps: Steps, now: float, transfer: float, *, to_come: float = 0.0, overtaken: bool = False
) -> bool:
    """Whether the KV cache of a request does not get to D.

    Args:
        request: The request.
        steps: D's steps.
        now: The time.
        transfer: Seconds that the KV cache may take while D does nothing else, or answers later requests.
        to_come: Seconds for which it is known to be still to come.
        overtaken: Whether later streams have gone before it that should not.
    """
    without = max(to_come, steps.without(request.began_at))
    return now - request.began_at >= transfer and (overtaken or without >= transfer)
