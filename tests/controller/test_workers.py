"""Workers survive faults, write only while they are allowed to, and stop gracefully."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import pytest

from pdinference.cluster.kinds import Owner
from pdinference.controller.metrics import Metrics
from pdinference.controller.queue import WorkQueue
from pdinference.controller.results import Result
from pdinference.controller.supervisor import Supervisor
from pdinference.controller.workers import Workers

if TYPE_CHECKING:
    from pdinference.inference.reconcile import Reconciler

pytestmark = pytest.mark.virtual_time

KEY = Owner("ns", "llama")


class World:
    """Workers around a reconcile of the test's own."""

    def __init__(self, reconcile: Callable[[], Awaitable[Result]], *, may_write: bool = True) -> None:
        self.calls = 0
        self.reached = asyncio.Event()
        self._reconcile = reconcile
        metrics = Metrics()
        self.queue: WorkQueue[Owner] = WorkQueue(metrics, jitter=lambda: 0.01)
        self.workers = Workers(
            self.queue, cast("Reconciler", self), metrics, Supervisor(metrics), may_write=lambda: may_write
        )
        self.workers.start(2)

    async def reconcile(self, _owner: Owner) -> Result:
        self.calls += 1
        if self.calls >= 2:
            self.reached.set()
        return await self._reconcile()


async def test_a_fault_is_survived_and_the_key_tried_again() -> None:
    async def fails() -> Result:
        raise RuntimeError("a bug")

    world = World(fails)
    world.queue.add(KEY)
    async with asyncio.timeout(5):
        await world.reached.wait()
    await world.workers.stop(1)


async def test_a_result_with_retry_is_queued_again() -> None:
    async def retries() -> Result:
        return Result(retry=True)

    world = World(retries)
    world.queue.add(KEY)
    async with asyncio.timeout(5):
        await world.reached.wait()
    await world.workers.stop(1)


async def test_nothing_is_reconciled_by_a_process_that_may_not_write() -> None:
    async def never() -> Result:
        return Result()

    world = World(never, may_write=False)
    world.queue.add(KEY)
    await asyncio.sleep(0.05)
    await world.workers.stop(1)
    assert world.calls == 0


async def test_stopping_lets_a_reconcile_finish() -> None:
    finished = asyncio.Event()

    async def slow() -> Result:
        await asyncio.sleep(0.1)
        finished.set()
        return Result()

    world = World(slow)
    world.queue.add(KEY)
    await asyncio.sleep(0.02)
    await world.workers.stop(5)
    assert finished.is_set()


async def test_stopping_does_not_wait_for_ever() -> None:
    async def hangs() -> Result:
        await asyncio.sleep(60)
        return Result()

    world = World(hangs)
    world.queue.add(KEY)
    await asyncio.sleep(0.02)
    async with asyncio.timeout(2):
        await world.workers.stop(0.1)
