"""Waits until the operator makes no more requests."""

import asyncio
from collections.abc import Callable, Sized

from tests.integration.world import World
from tests.waiting import until

QUIET_S = 3.0
"""Longer than an operator waits before it lists again after its watches began."""


async def calm(world: World, seconds: float = 1, *, counted: Callable[[int], Sized] | None = None) -> None:
    """Wait until the operator makes no more requests, because no watch events arrive.

    Args:
        world: The namespace.
        seconds: For how long it makes none.
        counted: The requests since a mark that count; by default all of this namespace.
    """
    mark = world.audit_mark()

    async def quiet() -> bool:
        nonlocal mark
        before, mark = mark, world.audit_mark()
        await asyncio.sleep(seconds)
        return not (counted or world.requests)(before)

    await until(quiet, "the operator is quiet")
