"""Finds pods that hang (they accept connections but do not answer) or stall (their engine makes no progress).

It also finds when a pod that refused connections or hung answers again. Requests do not try that: P would have computed
the prompt of one that D refuses.

Last, it finds requests whose KV cache does not get from P to D. A D engine waits for it without a limit, and P releases
it 30 s after the last message from D (`kv_lease_duration`). What D reads after that may belong to another prompt, so
such requests end before (vllm/distributed/kv_transfer/kv_connector/v1/nixl/worker.py).

Tests: tests/router/test_failures.py, tests/router/test_faults.py
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import aiohttp

from pdinference.api.names import PodFault
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.loadmetrics.scraping.text_format import name_of, sample
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.router.failure_reason import FailureReason
from pdinference.router.pod import Pod
from pdinference.router.pods import Pods
from pdinference.router.transfers import fetch_metrics

_PROBES: Final = 3
"""Number of probes in a row that have to fail."""
_STEPS: Final = b"vllm:iteration_tokens_total_count"
"""Counter of the engine's steps, in vLLM's metrics (vllm/v1/metrics/loggers.py). /health does not reach the engine."""
_STALLS: Final = 5
"""An engine is stuck when it stalls again so many times `stall` after it first did: it may compile a kernel before."""
_READINGS: Final = 4
"""Readings of it within the shorter one of the times below."""
_WITHOUT_STEPS: Final = frozenset({PodFault.STALLED, PodFault.STUCK})


@dataclass(slots=True)
class _Watch:
    """What is known of a pod that is silent.

    Attributes:
        failures: Probes in a row that failed.
        steps: The engine's steps at the last reading; None before.
        since: When they were first as many.
        read_at: When they were last read.
    """

    failures: int = 0
    steps: float | None = None
    since: float = 0.0
    read_at: float = 0.0


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
        transfer: Seconds that the KV cache may take from P to D while D does nothing else, or answers later requests.
    """

    def __init__(
        self,
        pods: Pods,
        session: aiohttp.ClientSession,
        share: Share,
        *,
        silence: float,
        stall: float,
        transfer: float,
    ) -> None:
        self._pods = pods
        self._session = session
        self._share = share
        self._silence = silence
        self._stall = stall
        self._transfer = transfer
        self._reading = min(stall, transfer) / _READINGS
        self._watches: dict[Pod, _Watch] = {}
        self._stalled: dict[Pod, tuple[float, float]] = {}
        """The engine's steps when it stalled, and when that was found."""

    async def forever(self) -> None:
        """Probe until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(self._silence / 3)

    async def round(self) -> None:
        """Probe each silent pod, and each with a fault, once."""
        now = asyncio.get_running_loop().time()
        silent = [pod for pod in self._pods if pod.awaited and pod.heard_at < now - self._silence]
        self._watches = {pod: self._watches.get(pod) or _Watch() for pod in silent}
        withdrawn = [pod for pod in self._pods if pod.withdrawn and pod.observed.ready]
        self._stalled = {pod: found for pod, found in self._stalled.items() if pod.fault in _WITHOUT_STEPS}
        await asyncio.gather(
            *map(self._check, silent), *map(self._try_again, withdrawn), *map(self._look_for_steps, self._stalled)
        )
        for pod in self._pods:
            self._end_transfers(pod)

    async def _check(self, pod: Pod) -> None:
        """Give up a silent pod that has failed."""
        if fault := await self._fault(pod):
            self._pods.failed(pod, self._stall_of(pod) if fault is PodFault.STALLED else fault)
            pod.lost(FailureReason(fault))

    def _stall_of(self, pod: Pod) -> PodFault:
        """Whether a pod stalled, or has stalled again and again. A step between would have ended its fault."""
        now = asyncio.get_running_loop().time()
        _, since = self._stalled.setdefault(pod, (self._watches[pod].steps or 0.0, now))
        return PodFault.STUCK if now - since >= _STALLS * self._stall else PodFault.STALLED

    async def _try_again(self, pod: Pod) -> None:
        """Send requests again to a withdrawn pod, if it answers."""
        if await self._is_healthy(pod):
            self._pods.answered(pod)

    async def _look_for_steps(self, pod: Pod) -> None:
        """Find whether the engine of a pod that stalled goes on."""
        steps = await _steps(pod, self._share)
        if steps is not None and steps != self._stalled[pod][0]:
            self._pods.answered(pod)

    def _end_transfers(self, pod: Pod) -> None:
        """End the requests to D whose KV cache does not come."""
        now = asyncio.get_running_loop().time()
        watch = self._watches.get(pod)
        idle = watch is not None and watch.steps is not None and now - watch.since >= self._transfer
        for request in tuple(pod.under_way):
            if not request.waits_for_kv_cache or now - request.began_at < self._transfer:
                continue
            if idle or (request.stream and pod.answered_at > request.began_at):
                request.abort(FailureReason.NO_KV_CACHE)

    async def _fault(self, pod: Pod) -> PodFault | None:
        """Why a silent pod has failed; None if it may be computing."""
        watch = self._watches[pod]
        watch.failures = 0 if await self._is_healthy(pod) else watch.failures + 1
        if watch.failures >= _PROBES:
            return PodFault.HUNG
        now = asyncio.get_running_loop().time()
        if watch.failures or now - watch.read_at < self._reading:
            return None
        watch.read_at, before = now, watch.steps
        watch.steps = await _steps(pod, self._share)
        if watch.steps is None or watch.steps != before:
            watch.since = now
        return PodFault.STALLED if now - watch.since >= self._stall else None

    async def _is_healthy(self, pod: Pod) -> bool:
        """Whether /health says so in time. The body of its answer does not matter, and is not read."""
        timeout = aiohttp.ClientTimeout(total=self._silence)
        try:
            async with self._session.get(f"{pod.url}/health", timeout=timeout, allow_redirects=False) as answer:
                return answer.status == HTTPStatus.OK
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False


async def _steps(pod: Pod, share: Share) -> float | None:
    """The engine's steps, over all engines of a server; None if it does not report them."""
    found: list[float] = []

    def take(line: bytes) -> None:
        if name_of(line) == _STEPS:
            found.append(sample(line).value)

    try:
        await fetch_metrics(pod, take, share)
    except UnreadableError:
        return None
    return sum(found) if found else None
