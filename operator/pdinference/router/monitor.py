"""Finds pods that hang: they accept connections but do not answer."""

import asyncio
from typing import Final

import aiohttp

from pdinference.router.pods import Pod, Pods

_PROBES: Final = 2
"""Number of probes in a row that have to fail."""


class Monitor:
    """Probes /health of pods that owe an answer and have been silent.

    A long prompt is silent for minutes, so silence alone is no failure; a pod that does not answer the probe is.

    Args:
        silence: Seconds without a byte for any request after which a pod is probed; also the timeout of the probe.
    """

    def __init__(self, pods: Pods, session: aiohttp.ClientSession, *, silence: float) -> None:
        self._pods = pods
        self._session = session
        self._silence = silence
        self._failed: dict[Pod, int] = {}

    async def forever(self) -> None:
        """Probe until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(self._silence / 3)

    async def round(self) -> None:
        """Probe each silent pod once."""
        now = asyncio.get_running_loop().time()
        silent = [pod for pod in self._pods if self._is_silent(pod, now)]
        answered = await asyncio.gather(*map(self._answers, silent))
        before, self._failed = self._failed, {}
        for pod, healthy in zip(silent, answered, strict=True):
            if healthy:
                continue
            self._failed[pod] = before.get(pod, 0) + 1
            if self._failed[pod] >= _PROBES:
                self._pods.failed(pod)
                pod.lost("hung")

    def _is_silent(self, pod: Pod, now: float) -> bool:
        return bool(pod.under_way) and max(one.silent_since for one in pod.under_way) < now - self._silence

    async def _answers(self, pod: Pod) -> bool:
        timeout = aiohttp.ClientTimeout(total=self._silence)
        try:
            async with self._session.get(f"{pod.url}/health", timeout=timeout) as answer:
                return answer.ok
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
