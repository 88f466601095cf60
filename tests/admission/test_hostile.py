"""The webhook answers every request, and allows nothing that it could not examine."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer
from prometheus_client import CollectorRegistry
from yarl import URL

from pdinference.admission.review import review_tasks
from pdinference.admission.webhook import admission_routes
from pdinference.api.bounds import MAX_SPEC_BYTES
from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor
from pdinference.examination.tasks import PROGRAM
from pdinference.isolation.calls import BusyError, Calls, EndedError, InProcess
from pdinference.isolation.process import ChildProgram, IsolatedProcess, LaneLimits
from pdinference.manifests import RenderSettings

Json = dict[str, Any]
Make = Callable[..., Json]
TASKS = review_tasks(RenderSettings())


class Broken:
    """Calls that do not end well."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        raise self.error


class Posts:
    """Posts bodies."""

    def __init__(self, session: aiohttp.ClientSession, server: BaseTestServer) -> None:
        self._session = session
        self._server = server

    async def raw(self, body: bytes, path: str = "/validate") -> tuple[int, Json]:
        async with self._session.post(self._server.make_url(path), data=body) as response:
            text = await response.text()
            return response.status, json.loads(text)["response"] if response.status == 200 else {"text": text}

    async def review(self, new: str, old: str = "null", path: str = "/validate") -> Json:
        status, found = await self.raw(review(new, old), path)
        assert status == 200
        assert found["uid"] == "u-1"
        if not found["allowed"]:
            assert found["status"]["message"].strip().endswith(".")
        return found


def review(new: str, old: str = "null") -> bytes:
    head = '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","namespace":"models",'
    return f'{head}"object":{new},"oldObject":{old}}}}}'.encode("utf-8", "surrogatepass")


@pytest.fixture
async def posts() -> AsyncIterator[Posts]:
    async for found in posting(InProcess(TASKS)):
        yield found


async def posting(calls: Calls) -> AsyncIterator[Posts]:
    app = web.Application(client_max_size=16 * 2**20)
    app.add_routes(admission_routes(calls, CollectorRegistry()))
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield Posts(session, server)


def with_spec(document: Json, spec: str) -> str:
    head = json.dumps({**document, "spec": 0})
    return head[: head.rindex("0")] + spec + "}"


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


SPECS = {
    "deep": deep(100_000),
    "just too deep": deep(64),
    "deep lists": "[" * 500 + "]" * 500,
    "large": json.dumps({"x": "y" * 1_400_000}),
    "just too large": json.dumps({"x": "y" * MAX_SPEC_BYTES}),
    "escaped": '{"x":"%s"}' % ("\\u003c" * MAX_SPEC_BYTES),
    "many objects": '{"x":[%s{}]}' % ("{}," * 1_000_000),
    "digits": '{"x":%s}' % ("9" * 10_000),
    "not an object": "5",
    "text": '"x"',
    "null": "null",
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("path", ["/validate", "/validate-early"])
async def test_a_hostile_spec_is_refused_in_words(name: str, path: str, posts: Posts, document: Make) -> None:
    for old in ("null", json.dumps(document())):
        found = await posts.review(with_spec(document(), SPECS[name]), old, path)
        assert found["allowed"] is False
        assert "fault of the operator" not in found["status"]["message"]
        assert len(found["status"]["message"]) < 1_000


ODD = ["[]", "5", '"x"', "{}", "true", "[null]", '{"name":["a"]}', '{"name":{"a":1}}', deep(90)]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("member", ["metadata", "kind", "apiVersion", "status", "spec"])
async def test_members_of_any_type_are_answered(member: str, value: str, posts: Posts, document: Make) -> None:
    made = json.dumps({**document(), member: 0})
    made = made.replace(f'"{member}": 0', f'"{member}": {value}')
    for new, old in ((made, "null"), (json.dumps(document(decode={"replicas": 2})), made), (made, made)):
        found = await posts.review(new, old)
        if not found["allowed"]:
            assert "fault of the operator" not in found["status"]["message"]


@pytest.mark.parametrize("name", ["deep", "large", "many objects"])
async def test_what_was_stored_can_be_labelled_finalized_and_mended(name: str, posts: Posts, document: Make) -> None:
    stored = document()
    labelled = document()
    labelled["metadata"]["labels"] = {"team": "a"}
    spec = SPECS[name] if name != "deep" else deep(900)
    assert (await posts.review(with_spec(labelled, spec), with_spec(stored, spec)))["allowed"] is True
    assert (await posts.review(json.dumps(document()), with_spec(stored, spec)))["allowed"] is True
    leaving = document()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
    assert (await posts.review(with_spec(leaving, spec), json.dumps(stored)))["allowed"] is True
    found = await posts.review(
        with_spec(stored, spec.replace("1", "2", 1).replace("y", "z", 1)), with_spec(stored, spec)
    )
    assert found["allowed"] is (name == "many objects"), "nothing differs in that one"


@pytest.mark.parametrize(
    "error",
    [EndedError("The examination took longer than 2 s and was ended."), BusyError("Too many. Try again."), KeyError(5)],
)
async def test_an_examination_that_does_not_end_well_is_a_refusal(error: Exception, document: Make) -> None:
    async for posts in posting(Broken(error)):
        found = await posts.review(json.dumps(document()))
        assert found["allowed"] is False
        expected = "failed (KeyError)" if isinstance(error, KeyError) else str(error)
        assert expected in found["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{", b"\xff\xfe", b"null", b"[" * 10**6),
        b'{"apiVersion":"admission.k8s.io/v1","request":[]}',
        b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":5}}',
        b'{"apiVersion":["a"],"request":{"uid":"u"}}',
    ],
)
async def test_what_is_no_review_is_a_bad_request(body: bytes, posts: Posts) -> None:
    status, found = await posts.raw(body)
    assert status == 400 or (body.startswith(b"[[") and found["allowed"] is False)


async def test_a_body_that_is_too_large_is_not_read(posts: Posts) -> None:
    status, _ = await posts.raw(b" " * (9 * 2**20))
    assert status == 413


async def test_bodies_that_do_not_come_leave_room_for_others(document: Make) -> None:
    """A client announces large bodies and sends none of them."""
    app = web.Application()
    app.add_routes(admission_routes(InProcess(TASKS), CollectorRegistry()))
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        head = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n"
        writers = []
        for _ in range(10):
            _, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(head)
            await writer.drain()
            writers.append(writer)
        deadline = time.monotonic() + 60
        while True:  # refused while there is no room, and soon there is
            async with session.post(server.make_url("/validate"), data=review(json.dumps(document()))) as response:
                assert response.status in {200, 429}
                if response.status == 200:
                    break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        for writer in writers:
            writer.close()


async def test_mutated_reviews_are_answered(posts: Posts, document: Make, batch_document: Make) -> None:
    """Bytes changed, cut out and doubled at random; the seed is fixed."""
    chance = random.Random(12)  # noqa: S311
    bodies = [
        review(json.dumps(document())),
        review(json.dumps(batch_document()), json.dumps(batch_document(suspend=True))),
    ]
    for _ in range(1_000):
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(body))
            piece = body[start : start + chance.randint(1, 30)]
            body[start : start + len(piece) * chance.randint(0, 1)] = chance.choice(
                [b"", piece * 3, b"[]", b"null", b"{}", b"0", b'"', b"\xff", b"-1e999", b"\\ud800"]
            )
        status, found = await posts.raw(bytes(body))
        assert status in {200, 400}
        if status == 200 and not found["allowed"]:
            assert "fault of the operator" not in found["status"]["message"], bytes(body)


AMPLE = LaneLimits(cpu_seconds=60, seconds=120, patience=300)


async def test_a_pod_that_sends_slow_reviews_of_invented_namespaces_delays_no_honest_one(document: Make) -> None:
    """80 connections of one address keep the queue full; the reviews of another address are all answered."""
    process = IsolatedProcess(ChildProgram(PROGRAM, RenderSettings()), {"admission": AMPLE}, CollectorRegistry())
    app = web.Application()
    app.add_routes(admission_routes(process.lanes["admission"], CollectorRegistry()))
    template = "{{ [" + "[]," * 4_000 + "] }}"
    slow = json.dumps(document(model={"source": {"path": "/m"}, "chatTemplate": {"inline": template}}))
    honest = review(json.dumps(document()))
    invented = itertools.count()

    async def attack(url: URL, session: aiohttp.ClientSession) -> None:
        while True:
            body = review(slow).replace(b'"models"', b'"invented-%d"' % next(invented))
            async with session.post(url, data=body) as response:
                await response.read()

    async with Supervisor(Metrics()).running("isolated-process", process.keep()), TestServer(app) as server:
        url = server.make_url("/validate")
        elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0), limit=0)
        async with aiohttp.ClientSession(connector=elsewhere) as hostile, aiohttp.ClientSession() as session:
            attacks = [asyncio.create_task(attack(url, hostile)) for _ in range(80)]
            try:
                async with asyncio.timeout(120):
                    await process.ready.wait()
                for _ in range(8):
                    async with session.post(url, data=honest) as response:
                        assert (await response.json())["response"]["allowed"] is True
                assert not any(task.done() for task in attacks)
            finally:
                for task in attacks:
                    task.cancel()
                await asyncio.gather(*attacks, return_exceptions=True)
