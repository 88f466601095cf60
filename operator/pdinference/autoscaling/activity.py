"""Whether anybody asks a model that may sleep: read from the activators in its router's pods."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from pdinference.api.names import ACTIVATOR_STATE_PORT, METRIC_HELD_REQUESTS, METRIC_IDLE_SECONDS, Role
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import Owner
from pdinference.cluster.records import PodRecord
from pdinference.planning.scaling.sleep import Activity

INTERVAL_S: Final = 1.0
"""A request that waits is noticed within this time."""
_FRESH_S: Final = 10.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=3)
_LARGEST: Final = 65536
_CONCURRENCY: Final = 64
_MARK: Final = b'"scaleToZero"'
_OK: Final = 200


class _Told(NamedTuple):
    at: float
    activity: Activity


class Activities:
    """What activators tell, asked on every replica of the operator.

    Args:
        on_change: Called with a resource of which requests begin or cease to wait, or to be known.
        interval: Seconds between two rounds.
        port: Where activators listen.
        clock: Seconds that never jump.

    Attributes:
        asked: Set once every activator has been asked.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        on_change: Callable[[Owner], None],
        interval: float = INTERVAL_S,
        port: int = ACTIVATOR_STATE_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.asked = asyncio.Event()
        self._cache = cache
        self._on_change = on_change
        self._interval = interval
        self._port = port
        self._clock = clock
        self._told: dict[str, _Told] = {}
        self._noted: dict[Owner, bool | None] = {}
        self._slots = asyncio.Semaphore(_CONCURRENCY)

    async def forever(self) -> None:
        """One round after the other."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT, trust_env=False) as session:
            while True:
                await self.round(session)
                await asyncio.sleep(self._interval)

    async def round(self, session: aiohttp.ClientSession) -> None:
        """Ask every activator once, and say where something changed."""
        owners = [record.owner for _, record in self._cache.resources.items() if _MARK in record.spec]
        pods = [pod for owner in owners for pod in self._routers(owner)]
        await asyncio.gather(*(self._ask(session, pod) for pod in pods))
        live = {pod.uid for pod in pods}
        self._told = {uid: told for uid, told in self._told.items() if uid in live}
        self._noted = {owner: self._noted.get(owner) for owner in owners}
        for owner in owners:
            found = self.of(owner)
            held = None if found is None else found.held
            if held != self._noted[owner]:
                self._noted[owner] = held
                self._on_change(owner)
        self.asked.set()

    def of(self, owner: Owner) -> Activity | None:
        """What all router pods of a resource tell together; None when one of them does not, and none has requests."""
        told, silent = [], False
        for pod in self._routers(owner):
            last = self._told.get(pod.uid)
            if last is not None and self._clock() - last.at <= _FRESH_S:
                told.append(last.activity)
            else:
                silent |= not pod.summary.terminating
        held = any(one.held for one in told)
        if not told or (silent and not held):
            return None
        return Activity(held, min(one.idle_seconds for one in told))

    def _routers(self, owner: Owner) -> list[PodRecord]:
        return [
            pod for pod in self._cache.pods.owned_by(owner) if pod.summary.role is Role.ROUTER and not pod.summary.gone
        ]

    async def _ask(self, session: aiohttp.ClientSession, pod: PodRecord) -> None:
        if not pod.address:
            return
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        try:
            async with (
                self._slots,
                session.get(f"http://{host}:{self._port}/metrics", allow_redirects=False) as answer,
            ):
                found = _parsed((await answer.content.read(_LARGEST)).decode()) if answer.status == _OK else None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return
        if found is not None:
            self._told[pod.uid] = _Told(self._clock(), found)


def _parsed(text: str) -> Activity | None:
    values = {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}
    held, idle = values.get(METRIC_HELD_REQUESTS), values.get(METRIC_IDLE_SECONDS)
    return None if held is None or idle is None else Activity(held > 0, idle)
