"""A pod that answers with errors what others answer without gets requests last."""

import asyncio
import json

import pytest
from aiohttp import web

from tests.router.engines import PARAMS, Engine, Fleet, events, fleet, status
from tests.router.test_busy import Clock

ERROR = status(500)


async def sent(world: Fleet, number: int) -> None:
    """Requests one after the other, each of which is answered."""
    for _ in range(number):
        code, _, _ = await world.post()
        assert code == 200


def requests_of(engine: Engine) -> int:
    return len(engine.bodies)


@pytest.mark.parametrize(("bad", "good"), [("d1", "d2"), ("p1", "p2")])
async def test_it_gets_no_more_requests_after_three_in_a_row(bad: str, good: str) -> None:
    async with fleet("p1", "p2", "d1", "d2", clock=Clock()) as world:
        world[bad].fault = ERROR
        await sent(world, 12)
        assert requests_of(world[bad]) == 3
        assert requests_of(world[good]) == 12


async def test_it_is_tried_again_after_a_pause_that_grows_until_it_answers() -> None:
    clock = Clock()
    async with fleet("p", "d1", "d2", clock=clock) as world:
        world["d1"].fault = ERROR
        await sent(world, 6)
        for pause in (0.25, 0.5):
            clock.now += pause
            before = requests_of(world["d1"])
            await sent(world, 4)
            assert requests_of(world["d1"]) == before + 1
        world["d1"].fault = None
        clock.now += 1.0
        before = requests_of(world["d1"])
        await sent(world, 4)
        assert requests_of(world["d1"]) == before + 2


async def test_an_answer_between_the_errors_is_forgiveness() -> None:
    async with fleet("p", "d1", "d2", clock=Clock()) as world:
        for _ in range(3):
            world["d1"].fault = ERROR
            await sent(world, 2)
            world["d1"].fault = None
            await sent(world, 2)
        before = requests_of(world["d1"])
        await sent(world, 4)
        assert requests_of(world["d1"]) == before + 2


async def test_it_gets_requests_if_there_is_no_other_pod() -> None:
    async with fleet("p", "d1", "d2", clock=Clock()) as world:
        world["d1"].fault = ERROR
        await sent(world, 6)
        world["d1"].fault = None
        world.observe("d2")
        await sent(world, 2)
        assert requests_of(world["d1"]) == 5


async def test_requests_that_no_pod_answers_take_none_from_others() -> None:
    async with fleet("p", "d1", "d2", clock=Clock()) as world:
        world["d1"].fault = world["d2"].fault = ERROR
        for code, _, _ in await asyncio.gather(*(world.post() for _ in range(6))):
            assert code == 500
        world["d1"].fault = world["d2"].fault = None
        before = requests_of(world["d1"]), requests_of(world["d2"])
        await sent(world, 4)
        assert (requests_of(world["d1"]), requests_of(world["d2"])) == (before[0] + 2, before[1] + 2)


@pytest.mark.parametrize("rule", ["Serve", "Wait", "Fail"])
async def test_it_gets_prompts_if_the_others_have_no_link_to_a_d_pod(rule: str) -> None:
    """Engines that share a pod are linked to each other alone."""
    async with fleet("a/p", "a/d", "b/p", "b/d", clock=Clock(), rules={"when_no_prefill": rule}) as world:
        world["a/p"].fault = ERROR
        await sent(world, 6)
        world["a/p"].fault = None
        world.observe("b/d")
        before = requests_of(world["a/p"])
        async with asyncio.timeout(5.0):
            await sent(world, 1)
        assert requests_of(world["a/p"]) == before + 1


async def test_many_errors_at_once_are_one_sign() -> None:
    """The requests that it had when it was left out say nothing of the time after the pause."""
    clock = Clock()
    async with fleet("p", "d1", "d2", clock=clock) as world:
        world["d1"].fault = ERROR
        for code, _, _ in await asyncio.gather(*(world.post() for _ in range(30))):
            assert code == 200
        world["d1"].fault = None
        clock.now += 0.25
        before = requests_of(world["d1"])
        await sent(world, 4)
        assert requests_of(world["d1"]) == before + 2


async def name_the_model(request: web.Request) -> web.Response:
    """As vLLM answers a request for a model that it does not have."""
    model = (await request.json()).get("model", "")
    error = {"message": f"The model `{model}` does not exist.", "code": 404}
    return web.json_response({"error": error}, status=404)


@pytest.mark.parametrize("body", [{}, {"n": 2}], ids=["p", "d"])
@pytest.mark.parametrize("length", [100, 70_000, 2_000_000])
async def test_an_error_that_repeats_what_the_client_sent_takes_no_pod_from_others(
    body: dict[str, int], length: int
) -> None:
    """Nor does it take memory while the client does not read it."""
    async with fleet("p", "d") as world:
        world["p"].fault = world["d"].fault = name_the_model
        code, _, answer = await world.post({**body, "model": "a" * length})
        assert (code, answer["error"]["code"]) == (404, 404)
        assert len(answer["error"]["message"]) < 66_000
        assert not any(pod.failures for pod in world.pods)
        world["p"].fault = world["d"].fault = None
        assert (await world.post(body))[0] == 200


@pytest.mark.parametrize("name", ["p", "d"])
async def test_an_answer_that_a_client_made_too_large_takes_no_pod_from_others(name: str) -> None:
    """As of many choices with the probabilities of their tokens; P repeats the `metadata` of a request."""

    async def large(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(2**27), "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"{")
        await asyncio.Event().wait()
        return response

    async with fleet("p", "d") as world:
        world[name].fault = large
        code, _, answer = await world.post()
        assert code == (502 if name == "d" else 200)
        assert name == "p" or "longer than" in answer["error"]["message"]
        assert not any(pod.failures for pod in world.pods)
        assert await world.metric('pdinference_router_pod_failures_total{reason="answer_too_large"') > 0


@pytest.mark.parametrize(("path", "member"), [("/v1/responses", "metadata"), ("/v1/messages", "input")])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_repeats_an_object_of_the_client_is_not_taken_for_one_that_vllm_aborted(
    path: str, member: str, stream: bool
) -> None:
    object_of_client = {"finish_reason": "abort"}
    text = json.dumps({"kv_transfer_params": PARAMS, member: object_of_client}, separators=(",", ":"))

    async def repeats(request: web.Request) -> web.StreamResponse:
        if not (await request.json()).get("stream"):
            return web.Response(text=text, content_type="application/json")
        response = await events(request)
        for _ in range(2):
            await response.write(f"data: {text}\n\n".encode())
        return response

    async with fleet("p", "d") as world:
        world["p"].fault = world["d"].fault = repeats
        code, _, answer = await world.post({"stream": stream, member: object_of_client}, path=path)
        assert code == 200
        assert not stream or answer.count(text.encode()) == 2
        assert await world.metric("pdinference_router_pod_failures_total") == 0
        assert not any(pod.failures for pod in world.pods)
