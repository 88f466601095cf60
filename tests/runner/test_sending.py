"""One request: retried after transient errors, failed if it is at fault, kept if the service is unavailable."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pdinference.runner.access import Access
from pdinference.runner.answers import InvalidAnswerError, answered
from pdinference.runner.lines import LONGEST_ANSWER, BatchRequestOutput, PreparedRequest, parsed
from pdinference.runner.room import Room
from pdinference.runner.sending import Sender, Service, ServiceAwayError
from pdinference.runner.suspects import Suspects
from tests.http_server import served
from tests.runner.service import FakeService, Reply, line
from tests.waiting import LONG_S, until


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    async with FakeService().serve() as service:
        yield service


async def send(service: FakeService, number: int = 1, **settings: Any) -> BatchRequestOutput:
    chosen = {"model": None, "default_model": "llama", "max_retries": 2, "timeout_s": 5, "patience_s": 0.1}
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        target = Service(service.url, **{**chosen, "first_pause_s": 0.01, **settings})
        sender = Sender(session, target, Access())
        async with await Room().take(1) as share:
            return await sender.send(parsed(json.dumps(line(number)).encode()).prepared(None, "llama"), share)


async def test_an_answer_is_kept_whole(service: FakeService) -> None:
    found = await send(service)
    assert found.answered
    assert found.custom_id == "request-1"
    assert found.response is not None
    assert (found.response.status_code, found.response.request_id) == (200, "chatcmpl-prompt 1")
    assert json.loads(bytes(found.response.body))["choices"][0]["message"]["content"] == "echo prompt 1"


@pytest.mark.parametrize(
    ("body", "settings", "sent"),
    [
        ({}, {}, "llama"),
        ({"model": "lora"}, {}, "lora"),
        ({"model": "gpt-4o"}, {"model": "llama"}, "llama"),
        ({}, {"default_model": None}, None),
    ],
)
def test_the_model_is_the_batchs_then_the_lines_then_the_services(body: Any, settings: Any, sent: str | None) -> None:
    chosen = {"model": None, "default_model": "llama", **settings}
    payload = parsed(json.dumps(line(1, **body)).encode()).prepared(**chosen).payload
    assert json.loads(payload).get("model") == sent


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_passing_failure_is_tried_again(service: FakeService, status: int) -> None:
    service.fault = lambda _, times: web.Response(status=status) if times < 3 else None
    assert (await send(service)).answered
    assert service.asked["prompt 1"] == 3


async def test_a_cut_connection_is_tried_again(service: FakeService) -> None:
    def cut_once(_: str, times: int) -> Reply:
        if times == 1:
            raise ConnectionAbortedError
        return None

    service.fault = cut_once
    assert (await send(service)).answered
    assert service.asked["prompt 1"] == 2


async def test_a_refused_request_is_not_sent_again_and_keeps_the_services_words(service: FakeService) -> None:
    service.fault = lambda *_: web.json_response({"error": {"message": "too long"}}, status=400)
    found = await send(service)
    assert not found.answered
    assert found.response is not None
    assert json.loads(bytes(found.response.body)) == {"error": {"message": "too long"}}
    assert service.asked["prompt 1"] == 1


async def test_an_error_in_plain_text_is_kept_too(service: FakeService) -> None:
    service.fault = lambda *_: web.Response(status=404, text="nothing here")
    found = await send(service)
    assert found.response is not None
    assert found.response.body == {"error": {"message": "nothing here"}}


async def test_a_request_that_fails_while_the_service_is_ready_is_given_up(service: FakeService) -> None:
    service.fault = lambda *_: web.Response(status=500)
    found = await send(service)
    assert found.response is not None
    assert found.response.status_code == 500
    assert service.asked["prompt 1"] == 3


async def test_an_answer_that_takes_too_long_is_given_up(service: FakeService) -> None:
    service.hold.clear()
    found = await send(service, timeout_s=0.05, max_retries=1)
    assert found.error is not None
    assert found.error.code == "timeout"
    assert service.asked["prompt 1"] == 2


async def test_an_answer_that_is_no_json_is_given_up(service: FakeService) -> None:
    service.fault = lambda *_: web.Response(text="<html>")
    found = await send(service)
    assert found.error is not None
    assert found.error.code == "invalid_answer"


async def test_while_the_service_is_away_no_request_is_given_up(service: FakeService) -> None:
    service.ready = False
    service.fault = lambda *_: web.Response(status=503)
    with pytest.raises(ServiceAwayError, match=r"not ready for 0\.1 s: HTTP status 503.*PDInference"):
        await send(service)


async def test_a_service_that_comes_back_in_time_answers(service: FakeService) -> None:
    seen = iter([False, False, True, True])
    service.is_ready = lambda: next(seen)
    service.fault = lambda _, times: web.Response(status=503) if times <= 3 else None
    assert (await send(service, patience_s=60)).answered
    assert service.asked["prompt 1"] == 4


async def test_a_request_that_brings_the_service_down_each_time_is_given_up(service: FakeService) -> None:
    """Else it would be sent for ever."""
    asked = 0

    def readiness() -> bool:
        nonlocal asked
        asked += 1
        return asked % 2 == 0  # down right after the request, up again soon

    service.fault = lambda *_: web.Response(status=500)
    service.is_ready = readiness
    found = await send(service, patience_s=30)
    assert found.error is not None
    assert found.error.code == "service_stopped"
    assert service.asked["prompt 1"] == 6


async def test_a_request_that_must_not_be_repeated_is_given_up(service: FakeService) -> None:
    service.fault = lambda *_: web.Response(status=502, headers={"X-Should-Retry": "false"})
    found = await send(service)
    assert found.response is not None
    assert found.response.status_code == 502
    assert service.asked["prompt 1"] == 1


async def test_a_large_answer_that_breaks_off_does_not_keep_others_from_theirs() -> None:
    """One holds the room for a large answer, the other waits for it, when the service goes away."""
    away, large = asyncio.Event(), asyncio.Semaphore(2)
    room = Room()

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        if large.locked():  # both had a large answer that broke off
            if away.is_set():
                request.transport.abort()  # type: ignore[union-attr]
            return web.json_response({})
        await large.acquire()
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(1 << 20)})
        await response.prepare(request)
        await response.write(b" " * 100_000)
        await away.wait()
        request.transport.abort()  # type: ignore[union-attr]
        return response

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=503 if away.is_set() else 200)

    async def send(sender: Sender, name: str) -> BatchRequestOutput:
        async with await room.take(1) as share:
            return await sender.send(PreparedRequest(custom_id=name, url="/v1/x", payload=b"{}"), share)

    routes = [web.post("/v1/x", answer), web.get("/health", health)]
    async with served(routes) as port, aiohttp.ClientSession(auto_decompress=False) as session:
        service = Service(f"http://127.0.0.1:{port}", None, None, 1, 600, 60, first_pause_s=0.01)
        suspects = Suspects()
        sender = Sender(session, service, Access(), suspects)
        both = [asyncio.create_task(send(sender, name)) for name in "AB"]
        await until(lambda: large.locked() and room.large.locked(), "one has the room, and the other waits for it")
        away.set()
        await until(lambda: suspects._strikes, "the service is away")
        away.clear()
        found = await asyncio.wait_for(asyncio.gather(*both), LONG_S)
    assert all(line.answered for line in found)


@pytest.mark.parametrize("body", [b" " * (LONGEST_ANSWER + 1), b"no JSON" * 20_000], ids=["too large", "no JSON"])
async def test_a_large_answer_that_cannot_be_stored_gives_its_room_back(body: bytes) -> None:
    """While the request waits for its next try, others may have large answers."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body)

    room, request = Room(), PreparedRequest(custom_id="A", url="/v1/x", payload=b"{}")
    async with (
        served([web.get("/", answer)]) as port,
        aiohttp.ClientSession() as session,
        await room.take(1) as share,
        session.get(f"http://127.0.0.1:{port}/") as response,
    ):
        with pytest.raises(InvalidAnswerError):
            await answered(request, response, share)
        assert not room.large.locked()
