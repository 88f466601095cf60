"""Requests whose KV cache does not come end before P's lease on it does, whatever other pods do."""

import asyncio
from dataclasses import dataclass
from itertools import count, repeat
from typing import Final

import pytest
from aiohttp import web

from pdinference.api.names import PodFault, Role
from pdinference.router.dispatch import Rules
from pdinference.router.failure_reason import FailureReason
from pdinference.router.lease import is_lost, is_overtaken, next_reading, still_to_come
from pdinference.router.pod import Observed, Pod
from pdinference.router.run import Settings
from pdinference.router.steps import Steps
from tests.router import engines
from tests.router.engines import fleet
from tests.router.test_failures import hang_without_kv_cache, under_way
from tests.router.test_faults import pod_of
from tests.waiting import LONG_S, until

TRANSFER_S: Final = Settings(Rules(None, {})).transfer
LOOK_S: Final = TRANSFER_S / 20
NOTICED_S: Final = 25.0
BEGAN: Final = 1000.0


@dataclass(eq=False)
class Request:
    """A request to D that began at a time."""

    began_at: float = BEGAN
    stream: bool = False
    reads_from: Pod | None = None
    placed: bool = True
    place: int = 0
    overtaken: bool = False

    def abort(self, reason: FailureReason) -> None:
        raise NotImplementedError(reason)


async def test_a_transfer_ends_in_time_while_the_probe_of_another_pod_hangs() -> None:
    async with fleet("p", "d1", "d2", silence=0.1) as world:
        world["d2"].fault, world["d2"].healthy = engines.hang, False
        await asyncio.wait_for(await under_way(world, "d2", without="d1"), LONG_S)
        assert pod_of(world, "d2").fault is PodFault.HUNG
        await world.stop()
        probes = world["d2"].probes
        await world.restart(silence=2 * LONG_S, transfer=0.8)
        await until(lambda: world["d2"].probes > probes, "the pod that hung is probed")
        world["d1"].fault, world["d1"].steps = hang_without_kv_cache, repeat(7)
        code, headers, _ = await asyncio.wait_for(world.post(), LONG_S)
        assert (code, headers["X-PDInference-Prefill"]) == (200, "decode")


@pytest.mark.parametrize("computes", [True, False])
async def test_kv_cache_may_wait_for_a_long_prompt_that_d_computes_itself(*, computes: bool) -> None:
    """vLLM counts no step while it computes a prompt in parts. The use of its KV cache grows with each of them."""
    parts = count()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=f"vllm:iteration_tokens_total_count 7\nvllm:kv_cache_usage_perc 0.{next(parts):04}\n")

    async with fleet("p", "d", silence=2 * LONG_S, transfer=0.4) as world:
        engine, pod = world["d"], pod_of(world, "d")
        engine.metrics_fault = metrics
        engine.go_on.clear()
        if computes:
            pod.queue.begin(2 * LONG_S, asyncio.get_running_loop().time())
        asked = asyncio.create_task(world.post())
        await engine.arrived.wait()
        read = engine.readings
        await until(lambda: engine.readings > read + 25 or len(engine.bodies) > 1, "several times what it may take")
        engine.go_on.set()
        _, headers, _ = await asyncio.wait_for(asked, LONG_S)
        assert headers["X-PDInference-Prefill"] == ("parameter" if computes else "decode")


@pytest.mark.parametrize("last_step", [None, 0.5, 1.5])
@pytest.mark.parametrize("failing", [0.0, 11.0])
def test_it_ends_before_the_lease_if_d_takes_no_step(last_step: float | None, failing: float) -> None:
    """A model of the guard's looks; readings between `failing` and twice that fail."""
    steps, request = Steps(), Request()
    now = BEGAN + LOOK_S
    while not is_lost(request, steps, now, TRANSFER_S):
        if now >= next_reading(steps, BEGAN, TRANSFER_S):
            count = 8.0 if last_step is not None and now >= BEGAN + last_step else 7.0
            steps.read(None if failing <= now - BEGAN < 2 * failing else count, now, now + 0.1)
        now += LOOK_S
        assert now <= BEGAN + NOTICED_S
    assert now >= BEGAN + TRANSFER_S


def test_a_d_that_takes_steps_may_let_it_wait() -> None:
    steps = Steps()
    for look in range(100):
        steps.read(float(look), BEGAN + look, BEGAN + look)
        assert not is_lost(Request(), steps, BEGAN + look, TRANSFER_S)


def test_an_idle_time_before_the_request_does_not_count() -> None:
    steps = Steps()
    for at in (BEGAN - 2 * TRANSFER_S, BEGAN + 1):
        steps.read(7.0, at, at)
    assert not is_lost(Request(), steps, BEGAN + TRANSFER_S + 1, TRANSFER_S)


@pytest.mark.parametrize(("overtaken", "waited", "lost"), [(True, 0, True), (True, -1, False), (False, 0, False)])
def test_a_stream_is_lost_that_later_ones_overtook(*, overtaken: bool, waited: float, lost: bool) -> None:
    assert is_lost(Request(), Steps(), BEGAN + TRANSFER_S + waited, TRANSFER_S, overtaken=overtaken) is lost


@pytest.mark.parametrize(
    ("stream", "behind", "room_at", "answered", "overtaken"),
    [
        (True, False, None, 1.0, True),
        (False, False, None, 1.0, False),
        (True, True, None, 1.0, False),
        (True, True, -5.0, 1.0, True),
        (True, True, 10.0, 11.0, False),
        (True, True, -5.0, -1.0, False),
    ],
    ids=["in order", "whole", "not known", "nobody waits for room", "since too short a time", "nobody is faster"],
)
def test_those_with_a_better_place_overtake_only_while_requests_wait_for_room(
    *, stream: bool, behind: bool, room_at: float | None, answered: float, overtaken: bool
) -> None:
    queued = Steps()
    queued.read(True, BEGAN - 10, BEGAN - 10)
    for at in () if room_at is None else (room_at, TRANSFER_S + 1):
        queued.read(False, BEGAN + at, BEGAN + at)
    request = Request(stream=stream, place=1, overtaken=not behind)
    assert is_overtaken(request, queued, BEGAN + answered, TRANSFER_S) is overtaken


@pytest.mark.parametrize(
    ("stream", "answered", "overtaken"), [(True, 1.0, True), (True, -1.0, False), (False, 1.0, False)]
)
def test_without_places_a_stream_that_was_sent_later_overtakes(
    *, stream: bool, answered: float, overtaken: bool
) -> None:
    assert is_overtaken(Request(stream=stream), Steps(), BEGAN + answered, TRANSFER_S) is overtaken


@pytest.mark.parametrize(
    ("later", "place", "overtaken"),
    [(1.0, 5, True), (1.0, 6, True), (-1.0, 6, False), (1.0, 4, False)],
)
def test_a_stream_overtakes_those_that_were_sent_before_it_and_not_those_with_a_higher_place(
    *, later: float, place: int, overtaken: bool
) -> None:
    pod = Pod(Observed("d", "d", Role.DECODE, "127.0.0.1:1", ready=True))
    waits, computes = Request(place=5, reads_from=pod), Request(place=5)
    pod.under_way = {waits, computes}
    pod.has_begun(Request(began_at=BEGAN + later, place=place))
    assert (waits.overtaken, computes.overtaken) == (overtaken, False)


@pytest.mark.parametrize(
    ("stream", "broken", "moving", "lost"),
    [
        (False, True, [True] * 12, True),
        (False, True, [True] * 5 + [False] + [True] * 6, False),
        (False, True, [False] * 12, False),
        (False, False, [True] * 12, False),
        (True, True, [True] * 12, False),  # it is lost if others overtake it
    ],
)
def test_a_whole_request_over_a_broken_link_is_lost_if_d_says_that_kv_cache_is_still_to_come(
    stream: bool, broken: bool, moving: list[bool], lost: bool
) -> None:
    steps, waits, now = Steps(), Steps(), BEGAN
    for number, one in enumerate(moving):
        now = BEGAN + number * TRANSFER_S / 10
        steps.read(float(number), now, now)
        waits.read(one, now, now)
    request = Request(stream=stream)
    to_come = still_to_come(request, waits, broken=broken)
    assert is_lost(request, steps, now, TRANSFER_S, to_come=to_come) is lost


async def test_a_whole_request_does_not_wait_for_ever_while_d_answers_others() -> None:
    """D takes steps for all others, so these do not show that it waits."""
    steps = count()

    async def metrics(_: web.Request) -> web.Response:
        waiting = 'vllm:num_requests_waiting_by_reason{engine="0",reason="%s"} %d\n'
        text = waiting % ("capacity", 0) + waiting % ("deferred", 1)
        return web.Response(text=f"vllm:iteration_tokens_total_count {next(steps)}\n{text}")

    async with fleet("p", "d", silence=2 * LONG_S, transfer=0.8) as world:
        world["d"].fault, world["d"].metrics_fault = hang_without_kv_cache, metrics
        whole, stream = (asyncio.create_task(world.post({"stream": streams})) for streams in (False, True))
        await until(lambda: len(world["d"].bodies) == 2, "both wait for their KV cache")
        await world.post({"stream": True, "n": 2})  # without P: it overtakes the stream, so the link is broken
        for asked in (stream, whole):
            code, headers, _ = await asyncio.wait_for(asked, LONG_S)
            assert (code, headers["X-PDInference-Prefill"]) == (200, "decode")
