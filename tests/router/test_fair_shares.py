"""Places in vLLM's queue: shares, priorities, and how long a request can be passed."""

import asyncio
import heapq
import io
import itertools
import json
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from pdinference.router.fair_shares import HEADER, LONGEST_LEAD_S, FairShares, QueuePlace, Standing
from pdinference.router.keys import Keys
from pdinference.router.usage import Usage
from tests.router.engines import EVENTS, PARAMS, abort, events, fleet, status
from tests.router.test_keys import OLD, OTHER, bearer, mounted
from tests.waiting import until

TOKENS = 1000
RATE = 1000
"""Tokens a second of the pod that is simulated."""
CLIENTS = ("batch", "chat", "large", "small", "gold", "iron", "a")


class Pod:
    """A pod that computes one request after another, in the order of their places."""

    def __init__(self, **standings: Standing) -> None:
        self.now = 0.0
        self.rate = RATE
        self.shares = FairShares(standings, clock=lambda: self.now)
        self.waiting: list[tuple[int, int, QueuePlace]] = []
        self.done: list[str] = []
        self._arrivals = itertools.count()

    def send(self, client: str, number: int = 1) -> None:
        for _ in range(number):
            place = self.shares.begin(client, TOKENS)
            heapq.heappush(self.waiting, (place.number, next(self._arrivals), place))

    def compute(self, number: int) -> Counter[str]:
        """Compute so many requests. How many there were of each client."""
        done = []
        for _ in range(number):
            _, _, place = heapq.heappop(self.waiting)
            self.now += TOKENS / self.rate
            self.shares.begun(place)
            self.shares.end(place, Usage(TOKENS, 0))
            done.append(place.client)
        self.done += done
        return Counter(done)


def warm(**standings: Standing) -> Pod:
    """A pod whose rate and clients are known."""
    pod = Pod(**standings)
    for number in range(120):
        pod.send(CLIENTS[number % len(CLIENTS)])
        pod.compute(1)
    return pod


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("rate", "queue", "done", "within"), [(RATE, 100, 3, 4), (50_000, 3000, 1500, 20)])
def test_one_request_goes_before_a_long_queue_of_another_client(
    *, known: bool, rate: int, queue: int, done: int, within: int
) -> None:
    pod = warm() if known else Pod()
    pod.rate = rate
    pod.send("batch", queue)
    pod.compute(done)
    pod.send("chat")
    assert "chat" in pod.compute(within)


def test_clients_with_long_queues_get_equal_parts_whoever_sent_more() -> None:
    pod = warm()
    pod.send("large", 200)
    pod.send("small", 60)
    found = pod.compute(80)
    assert abs(found["large"] - found["small"]) <= 8, found


@pytest.mark.parametrize("rate", [1_000, 20_000, 100_000])
@pytest.mark.parametrize("known", [False, True])
def test_nothing_changes_that_after_a_start_or_an_idle_time(*, rate: int, known: bool) -> None:
    """Before that, the rate is not known, or was that of other requests."""
    pod = warm() if known else Pod()
    pod.rate = rate
    pod.now += 3600.0
    for client in ("large", "small", "gold", "iron"):
        pod.send(client)
    pod.compute(4)
    pod.send("large", 1000)
    pod.now += 1.0
    pod.send("small", 60)
    found = pod.compute(400)
    assert found["small"] == 60, "it does not wait for all of the other one"


@pytest.mark.parametrize("rate", [2_000, 20_000, 200_000])
@pytest.mark.parametrize("idle", [0.0, 3600.0])
@pytest.mark.parametrize("known", [False, True])
def test_two_long_queues_get_equal_parts_whatever_is_known_of_the_rate(*, known: bool, idle: float, rate: int) -> None:
    """The second one comes later, and does not catch up with the first one before it shares (measured on a GPU)."""
    pod = warm() if known else Pod()
    pod.rate = rate
    pod.now += idle
    for client in ("large", "small"):
        pod.send(client)
    pod.compute(2)
    pod.send("large", 300)
    before = pod.compute(20)["large"]
    pod.send("small", 300)
    found = pod.compute(200)
    assert before == 20
    assert abs(found["large"] - found["small"]) <= 60, found


def test_shares_hold_for_as_long_as_queues_are_full() -> None:
    """Both keep 300 requests, for an hour; a third client with one request never waits for them."""
    pod = Pod(gold=Standing(share=3))
    pod.rate = 5_000
    for client in ("gold", "iron"):
        pod.send(client, 300)
    for _ in range(60):
        found = Counter[str]()
        for _ in range(300):
            (client,) = pod.compute(1)
            pod.send(client)
            found[client] += 1
        assert 2.5 <= found["gold"] / found["iron"] <= 3.5, found
        pod.send("chat")
        before = pod.now
        while pod.compute(1) != {"chat": 1}:
            pod.send(pod.done[-1])
        assert pod.now - before < 5, "of 120 s that the queues take"


def test_requests_that_are_given_up_and_sent_again_keep_their_part() -> None:
    pod = warm()
    pod.send("batch", 600)
    mine = [pod.shares.begin("small", TOKENS) for _ in range(100)]
    done = 0
    for _ in range(10):
        for place in mine:
            pod.shares.end(place, None)
        mine = [pod.shares.begin("small", TOKENS) for _ in range(100)]
        taken = sorted([(place.number, 0) for place in mine] + [(number, 1) for number, _, _ in pod.waiting])[:20]
        done += sum(not of_batch for _, of_batch in taken)
        pod.compute(sum(of_batch for _, of_batch in taken))
    assert done >= 60, "of 200"


def test_a_queue_that_its_client_gives_up_costs_it_nothing() -> None:
    pod = warm()
    pod.send("large", 50)
    given_up = [pod.shares.begin("small", TOKENS) for _ in range(50)]
    for place in given_up:
        pod.shares.end(place, None)
    pod.send("small", 20)
    found = pod.compute(40)
    assert abs(found["large"] - found["small"]) <= 4, found


def test_shares_hold_in_each_priority() -> None:
    pod = warm(gold=Standing(share=3), batch=Standing("Low", share=1000))
    for _ in range(100):
        for client in ("batch", "gold", "iron"):
            pod.send(client)
    found = pod.compute(80)
    assert found["batch"] == 0
    assert 2.5 <= found["gold"] / found["iron"] <= 3.5, found


def test_what_a_request_takes_is_learned_from_those_before_it() -> None:
    """An image is long, and has few tokens."""
    pod = warm()
    image, few = 350_000, Usage(1600, 100)
    for _ in range(20):
        pod.shares.end(pod.shares.begin("chat", image), few)
    pod.shares.end(pod.shares.begin("a", 1700), Usage(1700, 0))
    pod.send("large")  # something waits: times go on
    seconds = [pod.shares.begin(*one).ends - pod.now for one in (("chat", image), ("a", 1700))]
    assert 0.7 < seconds[0] / seconds[1] < 1.3


def test_clients_with_long_queues_get_their_shares() -> None:
    pod = warm(gold=Standing(share=3))
    for _ in range(100):
        pod.send("gold")
        pod.send("iron")
    found = pod.compute(80)
    assert 2.5 <= found["gold"] / found["iron"] <= 3.5, found


def test_a_client_alone_keeps_the_order_of_its_requests() -> None:
    pod = warm()
    shares = [pod.shares.begin("a", TOKENS).number for _ in range(400)]
    assert shares == sorted(shares)


def test_a_higher_priority_goes_first_until_a_request_has_waited_for_ten_minutes() -> None:
    pod = warm(chat=Standing("High"), batch=Standing("Low"))
    pod.send("batch", 500)
    pod.send("other")
    pod.send("chat", 3)
    assert list(pod.compute(4)) == ["chat", "other"]
    pod.now += 1300.0
    pod.send("chat")
    assert pod.compute(1) == {"batch": 1}


def test_a_clock_that_is_set_back_changes_nothing_but_the_time() -> None:
    pod = warm()
    pod.now -= 3600.0
    place = pod.shares.begin("a", TOKENS)
    assert pod.now < place.number / 1e6 <= pod.now + 2 * len(CLIENTS) * TOKENS / RATE


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 10**6), st.floats(0, 100)), max_size=40))
def test_no_request_is_passed_by_those_that_come_five_minutes_later(requests: list[tuple[str, int, float]]) -> None:
    now = [0.0]
    shares = FairShares({"a": Standing(share=1000)}, clock=lambda: now[0])
    for client, tokens, pause in requests:
        number = shares.begin(client, tokens).number
        assert 1e6 * now[0] - 1 <= number <= 1e6 * (now[0] + LONGEST_LEAD_S) + 1
        now[0] += pause


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 10**6)), max_size=20), st.randoms())
def test_ended_requests_leave_nothing_behind(requests: list[tuple[str, int]], random: Any) -> None:
    shares = FairShares({}, clock=lambda: 0.0)
    for client in "bca":
        before = shares.begin(client, 10)
        shares.end(before, None)
    places = [shares.begin(client, tokens) for client, tokens in requests]
    random.shuffle(places)
    for place in places:
        shares.end(place, None)
    assert shares.begin("a", 10) == before


async def test_pods_are_told_the_place_and_clients_cannot_choose_it(tmp_path: Path) -> None:
    keys = Keys(mounted(tmp_path, chat=OLD, batch=OTHER), {})
    fair = FairShares({"batch": Standing("Low")})
    async with fleet("p", "d", keys=keys, fair_shares=fair) as world:
        jumping = {HEADER: "-1", **bearer(OTHER)}
        assert (await world.post({"priority": -(2**40)}, headers=jumping))[0] == 200
        (low,) = [int(headers[HEADER]) for headers in world["p"].headers]
        assert (await world.post(headers=bearer(OLD)))[0] == 200
        normal = int(world["p"].headers[-1][HEADER])
        assert normal < low
        at_decode = [int(headers[HEADER]) for headers in world["d"].headers]
        assert at_decode == [low, normal], "the same as at P"
        for engine in (world["p"], world["d"]):
            in_headers = [int(headers[HEADER]) for headers in engine.headers]
            assert in_headers == [body["priority"] for body in engine.bodies], "embeddings have no header"

        world["p"].fault = abort
        assert (await world.post(headers=bearer(OTHER)))[0] == 200
        assert int(world["d"].headers[-1][HEADER]) > normal, "D computes the prompt"

        await world.post(path="/tokenize", headers=bearer(OLD))
        assert HEADER not in world["d"].headers[-1], "it waits for no tokens"


async def test_what_vllm_would_take_before_all_others_is_refused_or_has_no_place(tmp_path: Path) -> None:
    async with fleet("p", "d", keys=Keys(mounted(tmp_path, chat=OLD), {}), fair_shares=FairShares({})) as world:
        code, _, body = await world.post({"use_beam_search": True, "n": 2}, headers=bearer(OLD))
        assert (code, "use_beam_search" in body["error"]["message"]) == (400, True)
        assert (await world.post({"use_beam_search": False}, headers=bearer(OLD)))[0] == 200
        form = aiohttp.FormData({"file": io.BytesIO(b"sound"), "model": "m"})
        url = f"{world.url}/v1/audio/transcriptions"
        async with world.client.post(url, data=form, headers=bearer(OLD)) as answer:
            assert answer.status == 200
        assert HEADER not in world["d"].headers[-1]


async def test_without_fair_shares_pods_get_what_clients_send(tmp_path: Path) -> None:
    async with fleet("p", "d", keys=Keys(mounted(tmp_path, chat=OLD), {})) as world:
        assert (await world.post({"priority": 3}, headers=bearer(OLD)))[0] == 200
        assert world["d"].bodies[-1]["priority"] == 3
        assert HEADER not in world["d"].headers[-1]


async def test_a_client_with_one_request_does_not_wait_for_those_of_another(tmp_path: Path) -> None:
    """P takes one prompt after another, as vLLM with `--scheduling-policy priority`."""
    keys = Keys(mounted(tmp_path, batch=OLD, chat=OTHER), {})
    async with fleet("p", "d", keys=keys, fair_shares=FairShares({}, clock=lambda: 0.0)) as world:
        queue: list[tuple[int, int]] = []
        taken, changed, go = [], asyncio.Condition(), asyncio.Event()

        async def in_order(request: web.Request) -> web.Response:
            heapq.heappush(queue, place := (int(request.headers[HEADER]), len(queue)))
            async with changed:
                await changed.wait_for(lambda: go.is_set() and queue[0] == place)
                heapq.heappop(queue)
                taken.append(json.loads(await request.read())["prompt"])
                changed.notify_all()
            return web.json_response({"choices": [{"text": "0"}], "kv_transfer_params": PARAMS})

        world["p"].fault = in_order
        posts = [asyncio.create_task(world.post({"prompt": "batch"}, headers=bearer(OLD))) for _ in range(20)]
        await until(lambda: len(queue) == 20, "the prompts of the one client wait")
        posts.append(asyncio.create_task(world.post({"prompt": "chat"}, headers=bearer(OTHER))))
        await until(lambda: len(queue) == 21, "the prompt of the other one waits")
        async with changed:
            go.set()
            changed.notify_all()
        assert {answer[0] for answer in await asyncio.gather(*posts)} == {200}
        assert taken.index("chat") <= 2


async def test_a_new_queue_begins_where_pods_are_in_the_others(tmp_path: Path) -> None:
    """The first byte of an answer says where they are, and not its end."""
    keys = Keys(mounted(tmp_path, batch=OLD, chat=OTHER), {})
    async with fleet("p", "d", keys=keys, fair_shares=FairShares({}, clock=lambda: 0.0)) as world:
        begin, came, end = asyncio.Event(), asyncio.Semaphore(0), asyncio.Event()

        async def stream(request: web.Request) -> web.StreamResponse:
            await begin.wait()
            response = await events(request)
            await response.write(EVENTS[0])
            await end.wait()
            return response

        async def whole(_request: web.Request) -> web.Response:
            await end.wait()
            return web.json_response({"choices": []})

        async def streams() -> None:
            body = {"prompt": "one two", "max_tokens": 9, "stream": True}
            async with world.client.post(f"{world.url}/v1/completions", json=body, headers=bearer(OLD)) as answer:
                await answer.content.readany()
                came.release()
                await answer.read()

        async with asyncio.TaskGroup() as group:

            async def at_decode(request: Coroutine[Any, Any, Any], number: int) -> int:
                group.create_task(request)
                await until(lambda: len(world["d"].headers) == number, f"{number} requests are at D")
                return int(world["d"].headers[-1][HEADER])

            world["d"].fault = stream
            for number in range(1, 6):
                await at_decode(streams(), number)
            world["d"].fault = whole
            waits = await at_decode(world.post(headers=bearer(OLD)), 6)
            begin.set()
            for _ in range(5):
                await came.acquire()
            new = [await at_decode(world.post(headers=bearer(OTHER)), number) for number in (7, 8, 9)]
            end.set()
        assert new[0] < waits < new[2]


async def test_a_request_that_is_refused_moves_nobody(tmp_path: Path) -> None:
    keys = Keys(mounted(tmp_path, large=OLD, chat=OTHER), {})
    shares = FairShares({}, clock=lambda: 0.0)
    async with fleet("d", keys=keys, fair_shares=shares, rules={"handover": "none"}) as world:
        shares.begin("batch", 10)  # waits
        world["d"].fault = status(400)
        assert (await world.post({"prompt": "w " * 100_000}, headers=bearer(OLD)))[0] == 400
        world["d"].fault = None
        assert (await world.post(headers=bearer(OTHER)))[0] == 200
        large, chat = (int(headers[HEADER]) for headers in world["d"].headers)
        assert chat < large / 100
