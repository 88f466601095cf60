"""Memory for requests under way: many small ones at a time, and few large ones."""

import asyncio
from types import TracebackType
from typing import Self

REQUESTS = 32 << 20
"""Bytes of input lines under way, however many requests that are; one line always has room."""
SMALL = 64 << 10
"""Bytes of an answer that every request has room for; of larger ones, one is held at a time."""


class Room:
    """What all requests share."""

    def __init__(self, total: int = REQUESTS) -> None:
        self._total = total
        self._used = 0
        self._freed = asyncio.Condition()
        self.large = asyncio.Lock()

    async def take(self, size: int) -> "Share":
        """Wait until a request of this size has room."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._used == 0 or self._used + size <= self._total)
            self._used += size
        return Share(self, size)

    async def give(self, size: int) -> None:
        """Let others have it."""
        async with self._freed:
            self._used -= size
            self._freed.notify_all()


class Share:
    """What one request holds, until its line is stored."""

    def __init__(self, room: Room, size: int) -> None:
        self._room = room
        self._size = size
        self._large = False

    async def enlarge(self) -> None:
        """Wait until a large answer has room."""
        if not self._large:
            await self._room.large.acquire()
            self._large = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._large:
            self._room.large.release()
        await self._room.give(self._size)
