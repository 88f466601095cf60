"""Asks pods again and again: each namespace in rounds of its own, so that slow pods delay only those beside them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pdinference.cluster.state.records import PodRecord
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.loadmetrics.scraping.sparse_log import SparseLog

Targets = Callable[[], Mapping[str, Sequence[PodRecord]]]
"""The pods to ask now, by namespace."""
Read = Callable[[PodRecord, Share], Awaitable[None]]
"""Asks one pod."""

_LOG = logging.getLogger(__name__)


class Rounds:
    """Rounds of all namespaces.

    Args:
        targets: Called when rounds begin.
        read: Called for each pod.
        interval: Seconds between the beginnings of two rounds of a namespace; one that takes longer delays its next.
        after: Called with a namespace whose round is over.
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
        """Begin the rounds that can begin, at intervals."""
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
                except Exception as fault:  # noqa: BLE001 - a fault at one pod must not end the rounds of all
                    self._log.warning("A pod could not be read", namespace=namespace, pod=pod.summary.name, fault=fault)

        try:
            await asyncio.gather(*(one(pod) for pod in pods))
        finally:
            self._under_way.discard(namespace)
        self._after(namespace)
