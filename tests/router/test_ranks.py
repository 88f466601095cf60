"""Data-parallel ranks of a vLLM: the router chooses among them, and they live and die together."""

import asyncio
from collections import Counter
from typing import Any, Final, NamedTuple

import pytest
from aiohttp import web

from pdinference.api.names import METRIC_QUEUED_REQUESTS, KvSource, PodFault
from pdinference.engine.connectors.registry import HANDOVERS
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router import transfers
from pdinference.router.choice import by_session
from pdinference.router.faults import PodFaults
from pdinference.router.pod import Observed, Pod, by_rank
from pdinference.router.pods import Pods
from pdinference.router.steps import read_progress
from pdinference.router.transfers import read_counts
from tests.router.engines import D, Engine, P, abort, fleet, hang, status
from tests.router.test_deaths import Mortal
from tests.router.test_transfers import COMPUTED, FROM_P, Read, by_source
from tests.waiting import until

RANK: Final = "X-data-parallel-rank"
TWO: Final = {D: 2}


def asked(engine: Engine) -> Counter[str | None]:
    """How many requests each rank of a server got."""
    return Counter(headers.get(RANK) for headers in engine.headers)


def only(rank: int, fault: Any) -> Any:
    """A fault of one rank."""

    async def found(request: web.Request) -> web.StreamResponse:
        if request.headers[RANK] == str(rank):
            answer: web.StreamResponse = await fault(request)
            return answer
        return web.json_response({"by": f"rank {request.headers[RANK]}"})

    return found


def ranks_of(server: str, count: int) -> dict[str, Observed]:
    return {rank.uid: rank for rank in by_rank(Observed(server, server, D, f"{server}:1", ready=True), count)}


async def test_requests_are_spread_over_ranks_and_each_is_told_its_own() -> None:
    async with fleet("p", "d", ranks={P: 2, D: 3}) as world:
        world["d"].go_on.clear()
        requests = [asyncio.create_task(world.post({"stream": True})) for _ in range(6)]
        await until(lambda: len(world["d"].headers) == 6, "D has all of them")
        world["d"].go_on.set()
        assert {code for code, _, _ in await asyncio.gather(*requests)} == {200}
        assert asked(world["d"]) == {"0": 2, "1": 2, "2": 2}
        assert asked(world["p"]) == {"0": 3, "1": 3}


async def test_vllm_with_one_rank_is_told_none_and_clients_choose_none() -> None:
    async with fleet("p", "d", ranks=TWO) as world:
        assert (await world.post(headers={RANK: "7"}))[0] == 200
        assert (asked(world["p"]), asked(world["d"])) == ({None: 1}, {"0": 1})


async def test_a_session_stays_at_a_rank() -> None:
    async with fleet("p", "d1", "d2", ranks={D: 4}, rules={"policy": "consistent_hash"}) as world:
        for session in range(12):
            for _ in range(2):
                assert (await world.post(headers={"X-Session-Id": str(session)}))[0] == 200
        found = [asked(world[name]) for name in ("d1", "d2")]
        assert all(times % 2 == 0 for of in found for times in of.values())
        assert sum(map(len, found)) > 2


@pytest.mark.parametrize("fault", [abort, status(500)])
async def test_a_request_that_fails_at_a_rank_goes_to_another_server(fault: Any) -> None:
    """What broke a rank may break those beside it."""
    async with fleet("p", "d1", "d2", ranks={D: 4}) as world:
        world["d1"].fault = fault
        answers = await asyncio.gather(*(world.post() for _ in range(8)))
        assert {(code, body["by"]) for code, _, body in answers} == {(200, "d2")}
        ids = Counter(headers["X-Request-Id"] for headers in world["d1"].headers)
        assert set(ids.values()) <= {1}


async def test_a_sick_rank_of_the_only_server_leaves_requests_to_the_others() -> None:
    async with fleet("p", "d", ranks=TWO) as world:
        world["d"].fault = only(0, abort)
        answers = [await world.post() for _ in range(4)]
        assert {(code, body["by"]) for code, _, body in answers} == {(200, "rank 1")}


async def test_one_refused_connection_withdraws_all_ranks_of_a_server() -> None:
    async with fleet("p", "d", ranks={D: 16}, silence=0.3) as world:
        await world["d"].stop()
        request = asyncio.create_task(world.post())

        async def waits() -> bool:
            return await world.metric(METRIC_QUEUED_REQUESTS) == 1

        await until(waits, "the request waits for D")
        ranks = [pod for pod in world.pods if pod.observed.role is D]
        assert {(pod.fault, pod.deaths) for pod in ranks} == {(PodFault.REFUSES, 1)}
        await world["d"].start()
        assert (await request)[0] == 200


async def test_a_stuck_rank_is_named_and_the_others_go_on() -> None:
    async with fleet("p", "d", ranks=TWO, silence=0.2, stall=0.6) as world:
        world["d"].fault = only(0, hang)
        world["d"].metrics = 'vllm:iteration_tokens_total_count{engine="0"} 1\n'
        world["d"].metrics += 'vllm:iteration_tokens_total_count{engine="1"} 1\n'
        code, _, body = await world.post()
        assert (code, body["by"]) == (200, "rank 1")
        (family,) = PodFaults(world.pods).collect()
        assert [sample.labels for sample in family.samples] == [{"pod": "d/rank-0", "fault": "stalled"}]


async def test_the_death_of_an_engine_is_one_of_all_ranks_and_requests_wait() -> None:
    """Until the server ends, its other ranks answer with the same error: that is no second death."""
    async with fleet("p", "d", ranks={D: 4}) as world:
        server = Mortal(world["d"])
        server.died.set()
        request = asyncio.create_task(world.post())
        await world["d"].arrived.wait()
        ranks = [pod for pod in world.pods if pod.observed.role is D]
        await until(lambda: all(pod.failures for pod in ranks), "all ranks are paused")
        await world["d"].stop()
        world["d"].fault = None

        async def waits() -> bool:
            return await world.metric(METRIC_QUEUED_REQUESTS) == 1

        await until(waits, "the request waits for D")
        await world["d"].start()
        assert (await request)[0] == 200


@pytest.mark.parametrize(("path", "asked_at"), [("/v1/embeddings", 1), ("/v1/completions", 2)])
async def test_where_vllm_chooses_the_rank_another_ones_steps_count(path: str, asked_at: int) -> None:
    """The rank that the router names is idle then. It is no failure that it takes no step."""
    async with fleet("p", "d", ranks=TWO, silence=0.1, stall=0.4) as world:
        steps = 0

        async def metrics(_request: web.Request) -> web.Response:
            nonlocal steps
            steps += 1
            name = "vllm:iteration_tokens_total_count"
            return web.Response(text=f'{name}{{engine="0"}} 7\n{name}{{engine="1"}} {steps}\n')

        async def slow(request: web.Request) -> web.StreamResponse:
            if request.headers[RANK] == "0":
                await until(lambda: steps > 30, "the other rank has taken steps for long")
            return web.json_response({"by": "d"})

        world["d"].metrics_fault, world["d"].fault = metrics, slow
        assert (await world.post({"input": "one"}, path=path))[0] == 200
        assert sum(asked(world["d"]).values()) == asked_at


def test_a_fault_of_the_whole_server_is_named_once() -> None:
    pods = Pods()
    pods.observe(ranks_of("a", 16) | ranks_of("b", 2))
    first = next(iter(pods))
    pods.failed(first, PodFault.HUNG)
    (family,) = PodFaults(pods).collect()
    assert [sample.labels for sample in family.samples] == [{"pod": "a", "fault": "hung"}]
    assert [pod.withdrawn for pod in pods] == [True] * 16 + [False] * 2


def test_a_server_that_is_stuck_in_all_ranks_is_named_once_and_hides_no_other() -> None:
    pods = Pods()
    pods.observe(ranks_of("a", 64) | ranks_of("b", 2))
    *of_a, b, _ = pods
    for pod in of_a:
        pods.failed(pod, PodFault.STUCK)
    pods.failed(b, PodFault.STUCK)
    (family,) = PodFaults(pods).collect()
    assert [sample.labels["pod"] for sample in family.samples] == ["a", "b/rank-0"]


def test_a_hang_that_each_rank_finds_counts_once() -> None:
    pods = Pods()
    pods.observe(ranks_of("a", 16))
    for pod in pods:
        pods.failed(pod, PodFault.HUNG)
    assert max(pod.failures for pod in pods) <= 2


def test_ranks_of_a_server_share_its_room_and_have_keys_of_their_own() -> None:
    name = f"{'very-' * 20}long.example.com"
    pods = Pods()
    pods.observe(ranks_of(name, 4))
    assert {pod.observed.server for pod in pods} == {name}
    chosen = {by_session(list(pods), Session(str(number))).observed.rank for number in range(100)}
    assert chosen == {0, 1, 2, 3}


async def test_a_server_is_asked_once_for_what_all_ranks_answer_alike() -> None:
    async with fleet("d", ranks={D: 8}, rules={"handover": "none"}) as world:
        world["d"].fault = status(500)
        async with world.client.get(f"{world.url}/v1/models") as answer:
            assert answer.status == 503
        assert sum(asked(world["d"]).values()) == 1


async def test_ranks_that_are_read_at_once_share_a_reading() -> None:
    async with fleet("p", "d", ranks={D: 8}) as world:
        world["d"].metrics = "".join(
            f'vllm:iteration_tokens_total_count{{engine="{rank}"}} {rank}\n' for rank in range(8)
        )
        before, share = world["d"].readings, Share()
        of_d = [pod for pod in world.pods if pod.observed.role is D]
        found = await asyncio.gather(*(read_progress(pod, share) for pod in of_d))
        assert [one and one.steps for one in found] == list(range(8))
        assert world["d"].readings <= before + 2, "the router has read it too"
        whole = await read_progress(of_d[0], share, all_ranks=True)
        assert whole is not None
        assert whole.steps == sum(range(8))


def test_ranks_of_a_server_that_moves_or_goes_are_related_anew() -> None:
    pods = Pods()
    pods.observe(ranks_of("a", 3) | ranks_of("b", 2))
    assert [len(pod.ranks) for pod in pods] == [2, 2, 2, 1, 1]
    pods.observe(ranks_of("b", 2))
    assert [[one.observed.name for one in pod.ranks] for pod in pods] == [["b/rank-1"], ["b/rank-0"]]


class Session(NamedTuple):
    """A request of a session."""

    session: str
    body: bytes = b""
    tokens: int = 1


class Request:
    """Is under way."""

    began_at, reads_from, stream, placed, place, overtaken = 0.0, None, True, True, 0, False

    def abort(self, _reason: object) -> None:
        """Nothing to end."""


def test_a_request_was_not_alone_if_another_rank_of_the_server_had_one() -> None:
    """It may be the other one that killed the process."""
    pods = Pods()
    pods.observe(ranks_of("a", 2))
    one, other = pods
    mine, theirs = Request(), Request()
    with one.sending(mine, 1), other.sending(theirs, 1):
        assert one.failed_one(mine) == 1
        assert other.failed_one(theirs) == 1


async def test_metrics_of_a_server_are_read_once_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet("p", "d", ranks=TWO) as world:
        found = Read(world, monkeypatch)
        world["d"].counters = {FROM_P: 0, by_source("external_kv_transfer", 1): 0}
        await found.round()
        before = world["d"].readings
        world["d"].counters = {FROM_P: 5, by_source("external_kv_transfer", 1): 7}
        await found.round()
        assert world["d"].readings == before + 1
        assert found.tokens(KvSource.PARAMETER) == 12


async def test_a_request_to_any_rank_makes_the_next_reading_due(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet("p", "d", ranks=TWO) as world:
        found = Read(world, monkeypatch)
        monkeypatch.setattr(transfers, "_AT_REST_S", 1e9)
        await found.round()
        before = world["d"].readings
        await found.round()
        assert world["d"].readings == before
        with _second(world.pods).sending(Request(), 1):
            await found.round()
        assert world["d"].readings == before + 1


async def test_what_a_rank_counts_is_told_from_what_others_do() -> None:
    async with fleet("p", "d", ranks=TWO) as world:
        world["d"].counters = {FROM_P: 5, COMPUTED: 1, by_source("external_kv_transfer", 1): 7}
        counts = await read_counts(_second(world.pods), Share())
        assert counts is not None
        assert list(counts.values()) == [7]
        assert await read_progress(_second(world.pods), Share()) is None, "it reports no steps"


async def test_mooncake_names_the_engine_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet("p", "d", rules={"handover": "mooncake"}, ranks={P: 2}) as world:
        monkeypatch.setattr(HANDOVERS["mooncake"], "bootstrap_port", world["p"].port, raising=False)
        world["p"].engine_ids = {"0": "first", "1": "second"}
        for _ in range(2):
            assert (await world.post())[0] == 200
        computed = {
            headers["X-Request-Id"]: headers[RANK] for headers in world["p"].headers if "X-Request-Id" in headers
        }
        named = {
            headers["X-Request-Id"]: body["kv_transfer_params"]["remote_engine_id"]
            for headers, body in zip(world["d"].headers, world["d"].bodies, strict=True)
        }
    assert sorted(computed.values()) == ["0", "1"]
    assert named == {request: ["first", "second"][int(rank)] for request, rank in computed.items()}


def _second(pods: Pods) -> Pod:
    return next(pod for pod in pods if pod.observed.name == "d/rank-1")
