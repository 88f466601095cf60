"""Reads pods periodically, in separate rounds for each namespace, so that slow pods delay only their namespace.

Tests: tests/loadmetrics/test_rounds.py
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pdinference.cluster.state.records import PodRecord
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.loadmetrics.scraping.sparse_log import SparseLog

Targets = Callable[[], Mapping[str, Sequence[PodRecord]]]
"""Returns the pods to read now, by namespace."""
Read = Callable[[PodRecord, Share], Awaitable[None]]
"""Reads one pod."""

_LOG = logging.getLogger(__name__)


class Rounds:
    """Rounds of all namespaces.

    Args:
        targets: Called at the start of rounds.
        read: Called for each pod.
        interval: Seconds between the starts of two rounds of a namespace. A longer round delays the next one.
        after: Called with a namespace after its round.
    """

    def __init__(
        self, targets: Targets, read: Read, *, interval: float, after: Callable[[str], None] = lambda namespace: None
    ) -> None:
        self._targets = targets
        self._read = read
        self._interval = interval
        self._after = after
        self._log = SparseLog(_LOG)
        self._shares: dict[str, Share] = {}
        self._under_way: set[str] = set()

    async def forever(self) -> None:
        """Start rounds at intervals until cancelled, for all namespaces without a round in progress."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._begin(group)
                await asyncio.sleep(self._interval)

    async def once(self) -> None:
        """One round of each namespace."""
        async with asyncio.TaskGroup() as group:
            self._begin(group)

    def _begin(self, group: asyncio.TaskGroup) -> None:
        targets = self._targets()
        self._shares = {name: self._shares.get(name) or Share() for name in {*targets, *self._under_way}}
        for namespace in targets.keys() - self._under_way:
            self._under_way.add(namespace)
            group.create_task(self._round(namespace, targets[namespace]), name=f"round of {namespace}")

    async def _round(self, namespace: str, pods: Sequence[PodRecord]) -> None:
        share = self._shares[namespace]

        async def one(pod: PodRecord) -> None:
            async with share.connections:
                try:
                    await self._read(pod, share)
                except Exception as fault:  # noqa: BLE001 - an internal error with one pod must not stop all rounds
                    self._log.warning("Cannot read a pod", namespace=namespace, pod=pod.summary.name, fault=fault)

        try:
            await asyncio.gather(*(one(pod) for pod in pods))
        finally:
            self._under_way.discard(namespace)
        self._after(namespace)
