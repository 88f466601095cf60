"""Limits the memory of requests in progress: many small ones, or few large ones.

Tests: tests/runner/test_hostile_run.py
"""

import asyncio
from types import TracebackType
from typing import Self

REQUESTS = 32 << 20
"""Maximum total size of input lines in progress. A single line is always admitted."""
SMALL = 64 << 10
"""Size up to which every response is admitted. Only one larger response is held at a time."""


class Room:
    """Memory that all requests share."""

    def __init__(self, total: int = REQUESTS) -> None:
        self._total = total
        self._used = 0
        self._freed = asyncio.Condition()
        self.large = asyncio.Lock()

    async def take(self, size: int) -> "Share":
        """Wait until there is room for a request of this size."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._used == 0 or self._used + size <= self._total)
            self._used += size
        return Share(self, size)

    async def give(self, size: int) -> None:
        """Release memory."""
        async with self._freed:
            self._used -= size
            self._freed.notify_all()


class Share:
    """Memory of one request until its line is stored."""

    def __init__(self, room: Room, size: int) -> None:
        self._room = room
        self._size = size
        self._large = False

    async def enlarge(self) -> None:
        """Wait until there is room for a large response."""
        if not self._large:
            await self._room.large.acquire()
            self._large = True

    def shrink(self) -> None:
        """The large response did not come: another one may."""
        if self._large:
            self._large = False
            self._room.large.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shrink()
        await self._room.give(self._size)
