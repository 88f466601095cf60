"""Requests during which the service stopped: they are sent alone once more, and then no more.

One of them may be why it stopped. Alone, it is known which one. The strikes are stored, so that another runner does not
begin again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

MOST_STRIKES = 2


async def _not_stored(_custom_id: str) -> None:
    """Strikes of a run without a store."""


class Suspects:
    """Strikes of requests, by custom_id.

    Args:
        known: Those of earlier runs.
        store: Stores one more.
    """

    def __init__(
        self, known: Mapping[str, int] | None = None, store: Callable[[str], Awaitable[None]] = _not_stored
    ) -> None:
        self._strikes = Counter(known or {})
        self._store = store
        self._changed = asyncio.Condition()
        self._running = 0
        self._alone = 0

    def strikes(self, custom_id: str) -> int:
        """How often the service has stopped while it had this request."""
        return self._strikes.get(custom_id, 0)

    async def strike(self, custom_id: str) -> int:
        """Note that it stopped once more. Returns how often it has."""
        self._strikes[custom_id] += 1
        await self._store(custom_id)
        return self._strikes[custom_id]

    @asynccontextmanager
    async def turn(self, custom_id: str) -> AsyncIterator[None]:
        """Send a request: a suspect while no other is under way, any other one while no suspect waits."""
        alone = self.strikes(custom_id) > 0
        async with self._changed:
            self._alone += alone
            try:
                await self._changed.wait_for(lambda: not self._running if alone else not self._alone)
            except BaseException:
                self._alone -= alone
                self._changed.notify_all()
                raise
            self._running += 1
        try:
            yield
        finally:
            async with self._changed:
                self._running -= 1
                self._alone -= alone
                self._changed.notify_all()
