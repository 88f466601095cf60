"""Finds pods that hang (they accept connections but do not answer) or stall (their engine makes no progress).

It also finds when a pod that refused connections or hung answers again. Requests do not try that: P would have computed
the prompt of one that D refuses.

Tests: tests/router/test_failures.py, tests/router/test_faults.py
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import aiohttp

from pdinference.api.names import PodFault
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router.failure_reason import FailureReason
from pdinference.router.pod import Pod
from pdinference.router.pods import Pods
from pdinference.router.steps import Steps, read_progress

_PROBES: Final = 3
"""Number of probes in a row that have to fail."""
_STALLS: Final = 5
"""An engine is stuck when it stalls again so many times `stall` after it first did: it may compile a kernel before."""
_READINGS: Final = 12
"""Readings of the engine's steps within `stall`."""
_WITHOUT_STEPS: Final = frozenset({PodFault.STALLED, PodFault.STUCK})


@dataclass(slots=True)
class _Watch:
    """What is known of a pod that is silent.

    Attributes:
        heard_at: Since when it has been silent.
        failures: Probes in a row that failed.
        steps: The engine's steps.
    """

    heard_at: float
    failures: int = 0
    steps: Steps = field(default_factory=Steps)


class Monitor:
    """Probes pods that the router waits for and that have been silent, and those with a fault.

    A pod whose client does not read has nothing to say: it is silent, and no failure.
    A long prompt is silent for minutes, so silence alone is no failure. A pod whose API server does not answer /health
    is, and a pod whose engine takes no step for a long time.

    Args:
        pods: The pods.
        session: Connections to them.
        share: Limits of the reading of their metrics.
        silence: Seconds without a byte for any request after which a pod is probed; also the timeout of the probe.
        stall: Seconds without a step of the engine after which a pod has failed. No single step takes as long.
    """

    def __init__(
        self, pods: Pods, session: aiohttp.ClientSession, share: Share, *, silence: float, stall: float
    ) -> None:
        self._pods = pods
        self._session = session
        self._share = share
        self._silence = silence
        self._stall = stall
        self._watches: dict[Pod, _Watch] = {}
        self._stalled: dict[Pod, tuple[object, float]] = {}
        """The engine's progress when it stalled, and when that was found."""

    async def forever(self) -> None:
        """Probe until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(self._silence / 3)

    async def round(self) -> None:
        """Probe each silent pod, and each with a fault, once."""
        now = asyncio.get_running_loop().time()
        silent = [pod for pod in self._pods if pod.awaited and pod.heard_at < now - self._silence]
        self._watches = {pod: self._watch(pod) for pod in silent}
        withdrawn = [pod for pod in self._pods if pod.withdrawn and pod.observed.ready]
        self._stalled = {pod: found for pod, found in self._stalled.items() if pod.fault in _WITHOUT_STEPS}
        await asyncio.gather(
            *map(self._check, silent), *map(self._try_again, withdrawn), *map(self._look_for_steps, self._stalled)
        )

    def _watch(self, pod: Pod) -> _Watch:
        """What is known of a silent pod. Another pod may take a round's time, in which this one was heard."""
        known = self._watches.get(pod)
        return known if known is not None and known.heard_at == pod.heard_at else _Watch(pod.heard_at)

    async def _check(self, pod: Pod) -> None:
        """Give up a silent pod that has failed."""
        if fault := await self._fault(pod):
            self._pods.failed(pod, self._stall_of(pod) if fault is PodFault.STALLED else fault)
            pod.lost(FailureReason(fault))

    def _stall_of(self, pod: Pod) -> PodFault:
        """Whether a pod stalled, or has stalled again and again. A step between would have ended its fault."""
        now = asyncio.get_running_loop().time()
        _, since = self._stalled.setdefault(pod, (self._watches[pod].steps.last, now))
        return PodFault.STUCK if now - since >= _STALLS * self._stall else PodFault.STALLED

    async def _try_again(self, pod: Pod) -> None:
        """Send requests again to a withdrawn pod, if it answers."""
        if await self._is_healthy(pod):
            self._pods.answered(pod)

    async def _look_for_steps(self, pod: Pod) -> None:
        """Find whether the engine of a pod that stalled goes on."""
        found = await read_progress(pod, self._share)
        if found is not None and found != self._stalled[pod][0]:
            self._pods.answered(pod)

    async def _fault(self, pod: Pod) -> PodFault | None:
        """Why a silent pod has failed; None if it may be computing."""
        watch = self._watches[pod]
        watch.failures = 0 if await self._is_healthy(pod) else watch.failures + 1
        if watch.failures >= _PROBES:
            return PodFault.HUNG
        began = asyncio.get_running_loop().time()
        if watch.failures or began - watch.steps.tried_at < self._stall / _READINGS:
            return None
        found = await read_progress(pod, self._share, all_ranks=not pod.all_placed)
        watch.steps.read(found, began, asyncio.get_running_loop().time())
        return PodFault.STALLED if watch.steps.without() >= self._stall else None

    async def _is_healthy(self, pod: Pod) -> bool:
        """Whether /health says so in time. The body of its answer does not matter, and is not read."""
        timeout = aiohttp.ClientTimeout(total=self._silence)
        try:
            async with self._session.get(f"{pod.url}/health", timeout=timeout, allow_redirects=False) as answer:
                return answer.status == HTTPStatus.OK
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
