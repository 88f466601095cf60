"""A fair queue: groups have equal shares, and so do the sources within a group, so that none can delay the others."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")


def _one(_item: Any) -> float:
    return 1.0


class FairQueue(Generic[ItemT]):
    """Items of several sources. Each group has the same share of the work, and its sources take turns.

    The next group is the one that would have done its next item first if all groups with items worked at the same time
    (weighted fair queueing). So a group with small items does not wait for the large ones of many others, and groups
    with items of equal size take turns.

    A full queue has room for a group with little work: the group with the most loses its newest item. So a client that
    names a new source in each of its items takes the room of its own group only.

    Args:
        most: Limit for the items of all sources.
        most_of_one: Limit for the items of one source.
        work: The work of an item, in any unit.
    """

    def __init__(self, *, most: int, most_of_one: int, work: Callable[[ItemT], float] = _one) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._work = work
        self._waiting: dict[str, dict[str, deque[ItemT]]] = {}  # groups and sources, each in the order of their turns
        self._done = 0.0
        self._due: dict[str, float] = {}
        self._filled = asyncio.Event()

    def put(self, source: str, item: ItemT, *, group: str = "") -> ItemT | None:
        """Add an item of a source.

        Returns:
            The item for which there is no room: this one, or one of a group with more work; None if there is room.
        """
        own = self._waiting.get(group, {}).get(source, deque())
        if len(own) >= self._most_of_one:
            return item
        displaced = None
        if sum(len(items) for sources in self._waiting.values() for items in sources.values()) >= self._most:
            displaced = self._displaced(group, item)
            if displaced is None:
                return item
        own.append(item)
        self._waiting.setdefault(group, {})[source] = own
        self._due.setdefault(group, self._done + self._work(item))
        self._filled.set()
        return displaced

    async def get(self) -> ItemT:
        """The first item of the next source of the next group."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        group = min(self._waiting, key=self._due.__getitem__)
        sources = self._waiting.pop(group)
        self._done = self._due.pop(group)
        source, own = next(iter(sources.items()))
        item = own.popleft()
        del sources[source]
        if own:
            sources[source] = own  # behind the others
        if sources:
            self._waiting[group] = sources
            self._due[group] = self._done + self._work(next(iter(sources.values()))[0])
        return item

    def _displaced(self, group: str, item: ItemT) -> ItemT | None:
        """Take the newest item of the longest source of the group with the most work; None if this one has as much."""
        largest, sources = max(self._waiting.items(), key=lambda entry: self._sum(entry[1]))
        if self._sum(sources) <= self._sum(self._waiting.get(group, {})) + self._work(item):
            return None
        longest, own = max(sources.items(), key=lambda entry: len(entry[1]))
        taken = own.pop()
        if not own:
            del sources[longest]
        if not sources:
            del self._waiting[largest], self._due[largest]
        return taken

    def _sum(self, sources: Mapping[str, deque[ItemT]]) -> float:
        return sum(self._work(item) for items in sources.values() for item in items)
