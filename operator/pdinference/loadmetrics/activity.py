"""Activity of models with scale to zero, read from the activators in their router pods."""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pdinference.api.names import ACTIVATOR_STATE_PORT, METRIC_HELD_REQUESTS, METRIC_IDLE_SECONDS, Role
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import PodRecord
from pdinference.loadmetrics.scraping.fetch import Share, fetch
from pdinference.loadmetrics.scraping.rounds import Rounds
from pdinference.loadmetrics.scraping.text_format import name_of, sample
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.planning.scaling.sleep_and_wake import Activity

INTERVAL_S: Final = 1.0
"""Time between two rounds. A waiting request is detected within this time."""
_FRESH_S: Final = 10.0
_TIMEOUT_S: Final = 3.0
_PREFIX: Final = b"pdinference_"
_HELD: Final = METRIC_HELD_REQUESTS.encode()
_IDLE: Final = METRIC_IDLE_SECONDS.encode()


class _Report(NamedTuple):
    at: float
    activity: Activity


class ActivityMonitor:
    """Reads the state of activators, on each replica of the operator.

    Args:
        on_change: Called with a resource when its waiting requests appear, disappear, or become known or unknown.
        interval: Seconds between two rounds.
        port: Port of activators.
        clock: Monotonic clock, in seconds.

    Attributes:
        first_round_done: Set once each activator has been read.
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
        self.first_round_done = asyncio.Event()
        self._cache = cache
        self._on_change = on_change
        self._port = port
        self._clock = clock
        self._reports: dict[str, _Report] = {}
        self._last_held: dict[Owner, bool | None] = {}
        self._owners: defaultdict[str, list[Owner]] = defaultdict(list)
        self._rounds = Rounds(self._targets, self._read, after=self._note, interval=interval)

    async def forever(self) -> None:
        """Run rounds until cancelled."""
        await self._rounds.forever()

    async def round(self) -> None:
        """Read each activator once, and report changes."""
        await self._rounds.once()

    def _targets(self) -> Mapping[str, Sequence[PodRecord]]:
        """The router pods with an activator, by namespace.

        The pods show whether a resource has scale to zero. The stored spec may be invalid and not in effect.
        """
        self._owners = defaultdict(list)
        for owner in {pod.owner for _, pod in self._cache.pods.items() if pod.activator}:
            if owner is not None and self._cache.resources.get(owner) is not None:
                self._owners[owner.namespace].append(owner)
        found = {
            name: [pod for owner in owners for pod in self._routers(owner)] for name, owners in self._owners.items()
        }
        live = {pod.uid for pods in found.values() for pod in pods}
        self._reports = {uid: report for uid, report in self._reports.items() if uid in live}
        known = {owner for owners in self._owners.values() for owner in owners}
        self._last_held = {owner: held for owner, held in self._last_held.items() if owner in known}
        self._note_first()
        return found

    def _note(self, namespace: str) -> None:
        """Report changes after a round of a namespace."""
        for owner in self._owners.get(namespace, ()):
            found = self.activity(owner)
            held = None if found is None else found.held
            if held != self._last_held.setdefault(owner, None):
                self._last_held[owner] = held
                self._on_change(owner)
        self._note_first()

    def _note_first(self) -> None:
        if not self.first_round_done.is_set() and sum(map(len, self._owners.values())) == len(self._last_held):
            self.first_round_done.set()

    def activity(self, owner: Owner) -> Activity | None:
        """Activity over all router pods of a resource; None if a pod does not report and no other has requests."""
        reported, silent = [], False
        for pod in self._routers(owner):
            last = self._reports.get(pod.uid)
            if last is not None and self._clock() - last.at <= _FRESH_S:
                reported.append(last.activity)
            else:
                silent |= not pod.summary.terminating
        held = any(one.held for one in reported)
        if not reported or (silent and not held):
            return None
        return Activity(held, min(one.idle_seconds for one in reported))

    def _routers(self, owner: Owner) -> list[PodRecord]:
        return [
            pod for pod in self._cache.pods.owned_by(owner) if pod.summary.role is Role.ROUTER and not pod.summary.gone
        ]

    async def _read(self, pod: PodRecord, share: Share) -> None:
        if not pod.address:
            return
        values: dict[bytes, float] = {}

        def take(line: bytes) -> None:
            if name_of(line) in {_HELD, _IDLE}:
                found = sample(line)
                values[found.name] = found.value

        try:
            await fetch(pod.address, self._port, take, prefix=_PREFIX, share=share, seconds=_TIMEOUT_S)
        except UnreadableError:
            return
        held, idle = values.get(_HELD, math.nan), values.get(_IDLE, math.nan)
        if not math.isnan(held) and not math.isnan(idle):
            self._reports[pod.uid] = _Report(self._clock(), Activity(held > 0, idle))
