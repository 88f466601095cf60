"""A fair queue: groups take turns, and so do the sources within a group, so that none can delay the others."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class FairQueue(Generic[ItemT]):
    """Items of several sources, taken from each group and each of its sources in turn.

    A full queue has room for a group with few items: the group with the most loses its newest one. So a client that
    names a new source in each of its items takes the room of its own group only.

    Args:
        most: Limit for the items of all sources.
        most_of_one: Limit for the items of one source.
    """

    def __init__(self, *, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._waiting: dict[str, dict[str, deque[ItemT]]] = {}  # groups and sources, each in the order of their turns
        self._filled = asyncio.Event()

    def put(self, source: str, item: ItemT, *, group: str = "") -> ItemT | None:
        """Add an item of a source.

        Returns:
            The item for which there is no room: this one, or one of a group with more items; None if there is room.
        """
        own = self._waiting.get(group, {}).get(source, deque())
        if len(own) >= self._most_of_one:
            return item
        displaced = None
        if sum(map(_size, self._waiting.values())) >= self._most:
            displaced = self._displaced(group)
            if displaced is None:
                return item
        own.append(item)
        self._waiting.setdefault(group, {})[source] = own
        self._filled.set()
        return displaced

    async def get(self) -> ItemT:
        """The first item of the next source of the next group."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        group, sources = next(iter(self._waiting.items()))
        source, own = next(iter(sources.items()))
        item = own.popleft()
        del self._waiting[group], sources[source]
        if own:
            sources[source] = own  # behind the others
        if sources:
            self._waiting[group] = sources
        return item

    def _displaced(self, group: str) -> ItemT | None:
        """Take the newest item of the longest source of the largest group; None if that is no larger than this one."""
        largest, sources = max(self._waiting.items(), key=lambda entry: _size(entry[1]))
        if _size(sources) <= _size(self._waiting.get(group, {})) + 1:
            return None
        longest, own = max(sources.items(), key=lambda entry: len(entry[1]))
        item = own.pop()
        if not own:
            del sources[longest]
        if not sources:
            del self._waiting[largest]
        return item


def _size(sources: dict[str, deque[ItemT]]) -> int:
    return sum(map(len, sources.values()))
