"""No key is lost or processed twice at a time, and failed keys return with backoff."""

import asyncio

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pdinference.controller.metrics import Metrics
from pdinference.controller.queue import WorkQueue

KEYS = st.sampled_from("abc")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def queue(clock: Clock | None = None) -> WorkQueue[str]:
    return WorkQueue(Metrics(), clock=clock or Clock(), jitter=lambda: 1.0)


async def take(work: WorkQueue[str]) -> str | None:
    """The next key, None when there is none now."""
    try:
        async with asyncio.timeout(0):
            return await work.get()
    except TimeoutError:
        return None


async def test_a_key_that_waits_is_not_added_twice() -> None:
    work = queue()
    work.add("a")
    work.add("a")
    assert await work.get() == "a"
    assert await take(work) is None


async def test_a_key_added_while_in_progress_is_processed_again() -> None:
    work = queue()
    work.add("a")
    await work.get()
    work.add("a")
    assert await take(work) is None
    work.done("a")
    assert await work.get() == "a"


async def test_a_delayed_key_comes_when_it_is_due() -> None:
    clock = Clock()
    work = queue(clock)
    work.add_after("a", 5)
    assert await take(work) is None
    clock.now = 5
    assert await work.get() == "a"


async def test_the_earliest_of_several_delays_counts() -> None:
    clock = Clock()
    work = queue(clock)
    work.add_after("a", 50)
    work.add_after("a", 5)
    clock.now = 5
    assert await work.get() == "a"
    work.done("a")
    clock.now = 60
    assert await take(work) is None


async def test_back_off_doubles_up_to_five_minutes_and_starts_over_after_success() -> None:
    clock = Clock()
    work = queue(clock)
    delays = []
    for _ in range(12):
        delays.append(work.retry("a"))
        clock.now += 1000
        assert await work.get() == "a"
        work.done("a")
    assert delays[:4] == [0.5, 1, 2, 4]
    assert delays[-1] == 300
    work.forget("a")
    assert work.retry("a") == 0.5


async def test_the_servers_wish_to_wait_is_the_least_delay() -> None:
    assert queue().retry("a", retry_after=30) == 30


async def test_a_closed_queue_gives_nothing_out() -> None:
    work = queue()
    work.add("a")
    work.close()
    assert await work.get() is None


async def test_all_waiting_workers_end_when_the_queue_is_closed() -> None:
    work = queue()
    waiting = [asyncio.create_task(work.get()) for _ in range(3)]
    await asyncio.sleep(0)
    work.close()
    assert await asyncio.gather(*waiting) == [None, None, None]


@pytest.mark.parametrize("count", [1, 5])
async def test_every_waiting_worker_gets_a_key(count: int) -> None:
    work = queue()
    waiting = [asyncio.create_task(work.get()) for _ in range(count)]
    await asyncio.sleep(0)
    for number in range(count):
        work.add(str(number))
    assert sorted(filter(None, await asyncio.gather(*waiting))) == [str(number) for number in range(count)]


class QueueModel(RuleBasedStateMachine):
    """Against a model: keys that must still be given out, and keys that are being worked on."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clock = Clock()
        self.queue = queue(self.clock)
        self.wanted: set[str] = set()
        self.running: set[str] = set()
        self.later: dict[str, float] = {}

    def teardown(self) -> None:
        self.loop.close()

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.wanted.add(key)
        self.later.pop(key, None)

    @rule(key=KEYS, delay=st.floats(0.1, 10))
    def add_after(self, key: str, delay: float) -> None:
        self.queue.add_after(key, delay)
        if key not in self.wanted or key in self.running:
            due = self.clock.now + delay
            self.later[key] = min(due, self.later.get(key, due))

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self._promote()

    @rule()
    def take(self) -> None:
        self._promote()
        key = self.loop.run(take(self.queue))
        if key is None:
            assert not self.wanted - self.running
        else:
            assert key in self.wanted
            assert key not in self.running
            self.wanted.discard(key)
            self.running.add(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.queue.done(key)
        self.running.discard(key)
        if key in self.wanted:  # it was added while it ran, and is worked on before any timer of its
            self.later.pop(key, None)

    @invariant()
    def never_more_waits_than_is_wanted(self) -> None:
        assert len(self.queue) <= len(self.wanted)

    def _promote(self) -> None:
        for key, due in list(self.later.items()):
            if due <= self.clock.now:
                del self.later[key]
                self.wanted.add(key)


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
