"""A fair queue: items are taken from its sources in turn, so one source cannot delay the others."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class FairQueue(Generic[ItemT]):
    """Items of several sources, taken from each source in turn.

    Args:
        most: Limit for the items of all sources.
        most_of_one: Limit for the items of one source.
    """

    def __init__(self, *, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._waiting: dict[str, deque[ItemT]] = {}  # sources in the order of their turns
        self._count = 0
        self._filled = asyncio.Event()

    def put(self, turn: str, item: ItemT) -> bool:
        """Add an item of a source; False if the queue is full."""
        own = self._waiting.get(turn, deque())
        if self._count >= self._most or len(own) >= self._most_of_one:
            return False
        own.append(item)
        self._waiting[turn] = own
        self._count += 1
        self._filled.set()
        return True

    async def get(self) -> ItemT:
        """The first item of the next source."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        turn, own = next(iter(self._waiting.items()))
        item = own.popleft()
        del self._waiting[turn]
        if own:
            self._waiting[turn] = own  # behind the others
        self._count -= 1
        return item
