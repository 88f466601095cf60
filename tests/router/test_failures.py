"""A pod that fails before its first byte costs the client nothing; after it, the client learns of it."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from itertools import repeat
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pdinference.api.names import METRIC_QUEUED_REQUESTS
from tests.router import engines
from tests.router.engines import EVENTS, Engine, Fleet, fleet, status
from tests.waiting import LONG_S, until

BEFORE_THE_FIRST_BYTE: dict[str, Callable[..., Any]] = {
    "dies": engines.abort,
    "dies after the headers": engines.abort_after_headers,
    "gives up": engines.give_up,
    "answers 500": status(500),
    "answers 503": status(503),
    "hangs": engines.hang,
}
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


async def hung(world: Fleet, name: str) -> None:
    world[name].healthy = world[name].fault is not engines.hang


async def under_way(world: Fleet, name: str, *, without: str, **body: object) -> asyncio.Task[Any]:
    """A request that a pod has. The other pod of its role becomes known only then."""
    world.observe(without)
    asked = asyncio.create_task(world.post(body))
    await world[name].arrived.wait()
    world.observe()
    return asked


async def refuse(engine: Engine) -> None:
    await engine.stop()


@STREAMS
@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_BYTE)
async def test_another_d_answers_after_a_fault(fault: str, stream: bool) -> None:
    async with fleet("p", "d1", "d2", silence=0.5) as world:
        world["d1"].fault = BEFORE_THE_FIRST_BYTE[fault]
        await hung(world, "d1")
        asked = await under_way(world, "d1", without="d2", stream=stream)
        code, _, body = await asyncio.wait_for(asked, LONG_S)
        assert code == 200
        assert body == b"".join(EVENTS) if stream else body["by"] == "d2"
        # The blocks of the first prefill may be gone: D releases them at P when it has read them.
        assert len(world["p"].bodies) == 2
        assert await world.metric("pdinference_router_pod_failures_total") == 1


@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_BYTE)
async def test_another_p_computes_the_prompt_after_a_fault(fault: str) -> None:
    async with fleet("p1", "p2", "d", silence=0.5) as world:
        world["p1"].fault = BEFORE_THE_FIRST_BYTE[fault]
        await hung(world, "p1")
        asked = await under_way(world, "p1", without="p2")
        code, headers, _ = await asyncio.wait_for(asked, LONG_S)
        assert (code, headers["X-PDInference-Prefill"]) == (200, "parameter")
        assert len(world["d"].bodies) == 1


@pytest.mark.parametrize("fault", [*BEFORE_THE_FIRST_BYTE, "refuses"])
async def test_d_computes_the_prompt_without_p_and_says_so(fault: str) -> None:
    async with fleet("p", "d", silence=0.5) as world:
        if fault == "refuses":
            await refuse(world["p"])
        else:
            world["p"].fault = BEFORE_THE_FIRST_BYTE[fault]
            await hung(world, "p")
        code, headers, body = await asyncio.wait_for(world.post(), LONG_S)
        assert (code, body["by"], headers["X-PDInference-Prefill"]) == (200, "d", "decode")
        assert "kv_transfer_params" not in world["d"].bodies[0]
        assert await world.metric("pdinference_router_prefill_fallbacks_total") == 1


async def test_the_header_is_that_of_the_answer_and_not_of_an_earlier_try() -> None:
    async with fleet("p", "d1", "d2") as world:
        world.observe("p", "d2")
        world["d1"].fault = engines.hang
        asked = asyncio.create_task(world.post())
        await world["d1"].arrived.wait()
        world.observe("d1")
        code, headers, _ = await asked
        assert (code, headers["X-PDInference-Prefill"]) == (200, "parameter")
        assert await world.metric("pdinference_router_prefill_fallbacks_total") == 1


async def test_p_that_returns_no_parameters_is_a_fallback() -> None:
    async with fleet("p", "d", rules={"when_no_prefill": "Fail"}) as world:
        world["p"].fault = status(200, {"choices": []})
        code, headers, _ = await world.post()
        assert (code, headers["X-PDInference-Prefill"]) == (200, "decode")


async def test_without_p_a_request_fails_if_the_spec_says_so() -> None:
    async with fleet("d", rules={"when_no_prefill": "Fail"}) as world:
        code, headers, body = await world.post()
        assert (code, headers["Retry-After"]) == (503, "5")
        assert "No P pod" in body["error"]["message"]


async def test_without_p_a_request_waits_if_the_spec_says_so() -> None:
    async with fleet("p", "d", rules={"when_no_prefill": "Wait"}) as world:
        world.observe("p")
        asked = asyncio.create_task(world.post())
        await queued(world, 1)
        world.observe()
        code, headers, _ = await asked
        assert (code, headers["X-PDInference-Prefill"]) == (200, "parameter")


async def test_a_request_waits_for_a_d_that_restarts() -> None:
    async with fleet("p", "d") as world:
        await refuse(world["d"])
        asked = asyncio.create_task(world.post())
        await queued(world, 1)
        await world["d"].start()
        assert (await asyncio.wait_for(asked, LONG_S))[0] == 200


async def test_p_computes_no_prompt_that_would_wait_for_d() -> None:
    """P keeps the KV cache for seconds. What D reads after that may belong to another prompt."""
    async with fleet("p", "d") as world:
        world.observe("d")
        asked = asyncio.create_task(world.post())
        await queued(world, 1)
        assert world["p"].bodies == []
        world.observe()
        code, headers, _ = await asked
        assert (code, headers["X-PDInference-Prefill"]) == (200, "parameter")
        assert "kv_transfer_params" in world["d"].bodies[0]


async def hang_without_kv_cache(request: Any) -> Any:
    """Plays a D that cannot read from P."""
    if "kv_transfer_params" in await request.json():
        await engines.hang(request)
    return await stream_or_whole(request)


async def stream_or_whole(request: Any) -> Any:
    if not (await request.json()).get("stream"):
        return web.json_response({})
    response = await engines.events(request)
    for event in EVENTS:
        await response.write(event)
    return response


@STREAMS
async def test_d_computes_the_prompt_if_the_kv_cache_does_not_come(stream: bool) -> None:
    async with fleet("p", "d", silence=0.3, transfer=0.8) as world:
        world["d"].fault, world["d"].steps = hang_without_kv_cache, repeat(7)
        code, headers, _ = await asyncio.wait_for(world.post({"stream": stream}), LONG_S)
        assert (code, headers["X-PDInference-Prefill"]) == (200, "decode")
        assert await world.metric('pdinference_router_pod_failures_total{reason="kv_cache"') == 1
        # The next request does not wait for what has just failed.
        code, headers, _ = await world.post({"stream": stream})
        assert (code, headers["X-PDInference-Prefill"]) == (200, "decode")
        assert len(world["p"].bodies) == 1
        assert await world.metric('pdinference_router_prefill_fallbacks_total{reason="kv_cache"') == 2, "P is there"


async def test_another_p_is_used_if_the_kv_cache_of_one_does_not_come() -> None:
    async with fleet("p1", "p2", "d", silence=0.3, transfer=0.8) as world:
        world["d"].fault, world["d"].steps = hang_without_kv_cache, repeat(7)
        world.observe("p2")
        await asyncio.wait_for(world.post(), LONG_S)
        world["d"].fault = None
        world.observe()
        for _ in range(3):
            assert (await world.post())[1]["X-PDInference-Prefill"] == "parameter"
        assert (len(world["p1"].bodies), len(world["p2"].bodies)) == (1, 3)


async def test_a_stream_that_later_ones_overtake_does_not_wait_for_its_kv_cache() -> None:
    async with fleet("p", "d", silence=0.3, transfer=0.8) as world:
        world["d"].fault = hang_without_kv_cache
        asked = asyncio.create_task(world.post({"stream": True}))
        await world["d"].arrived.wait()
        await world.post({"stream": True, "n": 2})  # without P
        code, headers, _ = await asyncio.wait_for(asked, LONG_S)
        assert (code, headers["X-PDInference-Prefill"]) == (200, "decode")


async def test_if_d_may_not_compute_prompts_the_kv_cache_is_tried_again() -> None:
    async with fleet("p", "d", silence=0.3, transfer=0.8, rules={"when_no_prefill": "Wait"}) as world:
        world["d"].fault, world["d"].steps = hang_without_kv_cache, repeat(7)
        code, _, body = await asyncio.wait_for(world.post(), LONG_S)
        assert (code, "kv_cache" in body["error"]["message"]) == (502, True)
        assert len(world["p"].bodies) == 3


async def test_a_client_that_leaves_at_the_last_event_has_its_answer() -> None:
    left = asyncio.Event()
    async with fleet("p", "d") as world:

        async def last(request: Any) -> Any:
            response = await stream_or_whole(request)
            await left.wait()
            await response.write_eof()  # the router hears of the end first, and then that the client has gone
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return response

        world["d"].fault = last
        loop = asyncio.get_running_loop()
        client = socket.create_connection(("127.0.0.1", int(world.url.rpartition(":")[2])))
        client.setblocking(False)
        body = b'{"prompt": "a", "stream": true}'
        head = (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        await loop.sock_sendall(client, head % len(body) + body)
        got = b""
        while b"[DONE]" not in got:
            got += await loop.sock_recv(client, 65536)
        left.set()

        async def ended() -> bool:
            return await world.metric("pdinference_router_requests_total") == 1

        await until(ended, "the request has ended")
        assert await world.metric('pdinference_router_requests_total{client="",outcome="answered"') == 1


async def test_the_wait_is_bounded_in_time_and_number() -> None:
    async with fleet("p", "d", rules={"max_wait": 3, "max_queued": 1}) as world:
        world.observe("d")
        waits = asyncio.create_task(world.post({"n": 2}))
        await queued(world, 1)
        code, _, body = await world.post({"n": 2})
        assert (code, body["error"]["type"]) == (503, "service_unavailable")
        assert (await waits)[0] == 504


async def test_a_waiting_request_is_refused_at_shutdown() -> None:
    async with fleet("p", "d") as world:
        world.observe("d")
        asked = asyncio.create_task(world.post())
        await queued(world, 1)
        await world.stop()
        code, _, body = await asked
    assert (code, body["error"]["message"]) == (503, "The router is shutting down. Retry the request.")


async def test_a_router_that_leaves_says_so_on_open_connections() -> None:
    async with fleet("p", "d") as world:
        assert "Connection" not in (await world.post())[1]
        assert world.serving is not None
        world.serving.leave()
        for stream in (False, True):
            assert (await world.post({"stream": stream}))[1]["Connection"] == "close"


async def test_a_running_request_ends_before_the_process() -> None:
    async with fleet("p", "d", drain_seconds=30) as world:
        world["d"].go_on.clear()
        asked = asyncio.create_task(world.post())
        await world["d"].arrived.wait()
        stopped = asyncio.create_task(world.stop())
        await until(lambda: refuses(world), "new connections are refused")
        async with world.client.get(f"{world.state}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "The router is shutting down.")
        world["d"].go_on.set()
        assert (await asked)[0] == 200
        await stopped


async def test_a_request_that_kills_pods_is_given_up() -> None:
    names = ("d1", "d2", "d3", "d4", "d5")
    async with fleet("p", *names) as world:
        for name in names:
            world[name].fault = engines.abort
        code, _, body = await world.post()
        assert code == 502
        assert "disconnected" in body["error"]["message"]
        assert sum(len(world[name].bodies) for name in names) == 3


@STREAMS
async def test_a_request_that_pods_answer_with_an_error_harms_no_other(stream: bool) -> None:
    async with fleet("p", "d") as world:
        world["d"].fault = engines.error_event if stream else status(500)
        code, _, body = await world.post({"prompt": "a", "stream": stream})
        assert (code, body["error"]["message"]) == (500, "by the test")
        assert len(world["d"].bodies) == 3
        world["d"].fault = None
        assert (await asyncio.wait_for(world.post(), LONG_S))[0] == 200


async def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    async with fleet("p", "d1", "d2") as world:
        for name in ("d1", "d2"):
            world[name].fault = engines.abort_in_stream
        got = await cut_stream(world)
        first, error, rest = got.split(b"\n\n")
        assert (first + b"\n\n", rest) == (EVENTS[0], b""), "a part of an event is left out"
        assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == 502
        assert len(world["d1"].bodies) + len(world["d2"].bodies) == 1


async def test_a_stream_that_vllm_aborts_ends_with_an_error() -> None:
    async with fleet("p", "d") as world:

        async def begun() -> bool:
            return any(one.stream and one.reads_from is None for pod in world.pods for one in pod.under_way)

        async def give_up(request: Any) -> Any:
            response = await engines.events(request)
            await response.write(EVENTS[0])
            await until(begun, "the router has the first token")
            await response.write(b'data: {"choices":[{"text":"","finish_reason":"abort"}]}\n\ndata: [DONE]\n\n')
            return response

        world["d"].fault = give_up
        got = await cut_stream(world)
        assert b'"error"' in got
        assert b"aborted" in got
        assert b"[DONE]" not in got


async def test_a_stream_that_stalls_at_a_hanging_pod_ends_with_an_error() -> None:
    async def stall(request: Any) -> Any:
        response = await engines.events(request)
        await response.write(EVENTS[0])
        await asyncio.Event().wait()

    async with fleet("p", "d", silence=0.5) as world:
        world["d"].fault, world["d"].healthy = stall, False
        got = await cut_stream(world)
        assert b'"error"' in got
        assert b"hung" in got


async def test_probes_follow_no_pod_to_another_server() -> None:
    """Pods are not trusted, and the router reaches what their author may not."""
    async with fleet("p", "d1", "d2", silence=0.1) as world:
        probes = world["p"].probes
        world["d1"].fault, world["d1"].redirects = engines.hang, f"http://127.0.0.1:{world['p'].port}/health"
        asked = await under_way(world, "d1", without="d2")
        code, _, body = await asyncio.wait_for(asked, LONG_S)
        assert (code, body["by"]) == (200, "d2")
        assert world["p"].probes == probes


async def test_a_stalled_engine_behind_a_healthy_server_fails() -> None:
    async with fleet("p", "d1", "d2", silence=0.3, stall=1.2) as world:
        world["d1"].fault, world["d1"].steps = engines.hang, repeat(7)
        asked = await under_way(world, "d1", without="d2")
        code, _, body = await asyncio.wait_for(asked, LONG_S)
        assert (code, body["by"]) == (200, "d2")
        assert await world.metric('pdinference_router_pod_failures_total{reason="stalled"') == 1


async def test_a_hanging_pod_is_found_although_requests_keep_coming() -> None:
    async with fleet("p1", "p2", "d", silence=0.5, rules={"policy": "round_robin"}) as world:
        world["p1"].fault, world["p1"].healthy = engines.hang, False
        asked: list[asyncio.Task[Any]] = []

        async def found() -> bool:
            asked.append(asyncio.create_task(world.post()))  # clients that do not wait for each other
            return await world.metric('pdinference_router_pod_failures_total{reason="hung"') > 0

        await until(found, "the pod is found to hang")
        assert {code for code, _, _ in await asyncio.wait_for(asyncio.gather(*asked), LONG_S)} == {200}


async def cut_stream(world: Fleet) -> bytes:
    """What comes of a stream before HTTP says that it is not complete."""
    got = bytearray()

    async def read(answer: aiohttp.ClientResponse) -> None:
        async for chunk in answer.content.iter_any():
            got.extend(chunk)

    async with world.client.post(f"{world.url}/v1/completions", json={"prompt": "a", "stream": True}) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await read(answer)
    return bytes(got)


async def test_a_long_prompt_is_no_hanging_pod() -> None:
    async with fleet("p", "d", silence=0.4, stall=1.0) as world:
        world["d"].go_on.clear()
        asked = asyncio.create_task(world.post())
        await world["d"].arrived.wait()
        with pytest.raises(TimeoutError):  # many probes fit in
            await asyncio.wait_for(asyncio.shield(asked), 4)
        world["d"].go_on.set()
        assert (await asked)[0] == 200


async def test_a_deleted_pod_ends_its_requests_at_once() -> None:
    async with fleet("p", "d1", "d2") as world:
        world["d1"].fault = engines.hang
        asked = await under_way(world, "d1", without="d2")
        world.observe("d1")
        code, _, body = await asyncio.wait_for(asked, LONG_S)
        assert (code, body["by"]) == (200, "d2")


@pytest.mark.parametrize("where", ["p", "d"])
async def test_a_client_that_goes_away_cancels_its_request(where: str) -> None:
    async with fleet("p", "d") as world:
        world[where].go_on.clear()
        asked = asyncio.create_task(world.post())
        await world[where].arrived.wait()
        asked.cancel()
        await asyncio.wait_for(world[where].left.wait(), LONG_S)
        await until(lambda: idle(world), "no pod has a request")


async def queued(world: Fleet, number: int) -> None:
    async def so() -> bool:
        return await world.metric(METRIC_QUEUED_REQUESTS) == number

    await until(so, f"{number} requests wait")


async def refuses(world: Fleet) -> bool:
    try:
        async with aiohttp.ClientSession() as client, client.get(f"{world.url}/v1/models"):
            return False
    except aiohttp.ClientConnectorError:
        return True


async def idle(world: Fleet) -> bool:
    return not any(pod.requests or pod.tokens for pod in world.pods)
