"""Requests that may kill pods: which ones are suspect, and when they are given up (docs/adr/0025).

A request that pods die of is not to go from one pod to the next. Nor is a pod that is killed to lose its requests. The
router sees which requests a pod had when it died, and whether vLLM itself reported the death of its engine.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum, auto
from hashlib import blake2b
from http import HTTPStatus
from typing import Final

import aiohttp

from pdinference.api.names import Role
from pdinference.router.calls import Call
from pdinference.router.exchange import PodFailure
from pdinference.router.failure_reason import FailureReason
from pdinference.router.pod import Pod
from pdinference.router.record import Record

_MOST: Final = 2
"""Pods that may die while they have one request."""
_DOUBTFUL: Final = (FailureReason.DISCONNECTED, FailureReason.EMPTY_STREAM, FailureReason.ERROR_EVENT)
"""Failures after which it is unknown whether the pod lives."""
_FOLLOWS_S: Final = 30.0
"""How long after D was lost the death of P may be its consequence. UCX has a fault that ends P when a D that reads its
KV cache over TCP is killed (benchmarks/results/dead-peer.md)."""
_PROBE: Final = aiohttp.ClientTimeout(total=1)
_WATCHED_S: Final = 2.0
"""Longest time in which a suspect is watched. An engine dies when it schedules the request, or in its first step."""
_LONGEST_WAIT_S: Final = 10.0
_REMEMBERED_S: Final = 600.0
_MOST_REMEMBERED: Final = 1024


class Death(Enum):
    """What died at a failure of a pod."""

    NOTHING = auto()
    """The pod lives, or it was failing before it got the request, or it cannot be reached."""
    POD = auto()
    """The process has ended, and nothing says why."""
    ENGINE = auto()
    """The engine alone: the API server in front of it runs on and says so. A pod that is killed does not."""


class Deaths:
    """The deaths of pods that had requests.

    Args:
        session: Connections to pods.
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, session: aiohttp.ClientSession, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._watching = asyncio.Lock()
        self._decode_lost = -math.inf
        self._killed: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        """By the hash of a request: how often an engine died that had nothing else, and when it last did."""

    async def note(self, pod: Pod, failure: PodFailure, call: Call, record: Record) -> None:
        """Note in the record of a request whether a pod died while it had it.

        Args:
            pod: The pod.
            failure: Its failure.
            call: The request.
            record: Its record. `suspect` is set if others were under way, `poison` if it is to be given up.
        """
        if pod.observed.role is Role.DECODE and failure.reason in _DOUBTFUL:
            self._decode_lost = self._clock()  # before it is probed: P may end in the same millisecond
        death = await self._death(pod, failure)
        if death is Death.NOTHING or self._follows(pod):
            return
        record.deaths += 1
        # With several ranks, vLLM reports the death of any of them to all requests.
        certain = death is Death.ENGINE and failure.alone and not pod.ranks
        if certain:
            self._remember(call)
        record.suspect |= death is Death.ENGINE
        record.poison |= certain or record.deaths >= _MOST

    def _follows(self, pod: Pod) -> bool:
        """Whether a pod may have died because D did, and not of the requests that it had."""
        return pod.observed.role is Role.PARAMETER and self._clock() - self._decode_lost < _FOLLOWS_S

    async def _death(self, pod: Pod, failure: PodFailure) -> Death:
        if failure.was_failing or not pod.observed.ready:
            return Death.NOTHING
        if failure.reason is FailureReason.ENGINE_DIED:
            return Death.ENGINE
        if failure.reason is FailureReason.STALLED:
            return Death.POD
        doubtful = failure.reason in _DOUBTFUL or failure.status == HTTPStatus.INTERNAL_SERVER_ERROR
        return await self._probed(pod) if doubtful else Death.NOTHING

    async def _probed(self, pod: Pod) -> Death:
        """What /health says: vLLM answers 503 if its engine has died."""
        try:
            async with self._session.get(f"{pod.url}/health", timeout=_PROBE, allow_redirects=False) as answer:
                return Death.ENGINE if answer.status == HTTPStatus.SERVICE_UNAVAILABLE else Death.NOTHING
        except aiohttp.ClientConnectorError as error:
            return Death.POD if isinstance(error.os_error, ConnectionRefusedError) else Death.NOTHING
        except aiohttp.ServerDisconnectedError:
            return Death.POD
        except (aiohttp.ClientError, OSError, TimeoutError):
            return Death.NOTHING  # a network that is cut is no death

    @asynccontextmanager
    async def watched(self, record: Record) -> AsyncIterator[None]:
        """Send a request. Suspects are sent one at a time, so that the one that kills a second pod is known.

        Args:
            record: The record of the request.
        """
        if not record.suspect or not await self._my_turn():
            yield
            return
        turn = _Turn(self._watching)
        end = asyncio.get_running_loop().call_later(_WATCHED_S, turn.end)
        try:
            yield
        finally:
            end.cancel()
            turn.end()

    async def _my_turn(self) -> bool:
        """Wait for other suspects; False if that takes too long."""
        try:
            async with asyncio.timeout(_LONGEST_WAIT_S):
                return await self._watching.acquire()
        except TimeoutError:
            return False

    def known(self, call: Call) -> bool:
        """Whether a request is the same as one that engines have died of, twice, and that was never answered since."""
        if not self._killed:
            return False
        times, last = self._killed.get(_hash(call), (0, 0.0))
        return times >= _MOST and self._clock() - last < _REMEMBERED_S

    def answered(self, call: Call) -> None:
        """Note that a pod has answered a request."""
        if self._killed:
            self._killed.pop(_hash(call), None)

    def _remember(self, call: Call) -> None:
        key, now = _hash(call), self._clock()
        times, last = self._killed.pop(key, (0, now))
        self._killed[key] = (times + 1 if now - last < _REMEMBERED_S else 1, now)
        if len(self._killed) > _MOST_REMEMBERED:
            self._killed.popitem(last=False)


class _Turn:
    """A lock that is held, and released once."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock: asyncio.Lock | None = lock

    def end(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _hash(call: Call) -> bytes:
    return blake2b(call.path.encode() + b"\n" + call.body, digest_size=16).digest()
