"""Kopf reads lists and watches whatever objects there are."""

import json
from collections.abc import AsyncIterator

import aiohttp
import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kopf._cogs.clients.api import iter_jsonlines

from pdinference.cluster.kinds import RESOURCE
from pdinference.runtime.freshness import Freshness, response_class
from pdinference.runtime.stream import EventStream, without_objects
from tests.cluster.test_objects import body, deep

SPECS = {"flat": "{}", "deep": deep(50_000), "large": json.dumps({"x": "y" * 1_300_000})}
PATH = RESOURCE.path("ns")


async def chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


class Reader:
    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size

    def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        return chunks(self._data, self._size)


@pytest.mark.parametrize("size", [1_000, 65_536, 10_000_000])
async def test_every_event_arrives(size: int) -> None:
    data = b"".join(b'{"type":"ADDED","object":%b}\n' % body(spec, name=name) for name, spec in SPECS.items())
    stream = EventStream(Reader(data, size), PATH, lambda: None)
    events = [json.loads(line) async for line in iter_jsonlines(stream)]  # type: ignore[arg-type]
    assert [event["object"]["metadata"]["name"] for event in events] == list(SPECS)


async def test_what_is_no_event_does_not_end_the_watch() -> None:
    data = b'{"type":"ADDED","object":{"metadata":1}}\n' + b"\xff" * 300_000 + b'\n{"type":"BOOKMARK"}\n\n'
    stream = EventStream(Reader(data, 1_000), PATH, lambda: None)
    events = [json.loads(line) async for line in iter_jsonlines(stream)]  # type: ignore[arg-type]
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]


@pytest.mark.parametrize("name", SPECS)
async def test_of_a_list_only_the_version_is_left(name: str) -> None:
    data = b'{"kind":"PDInferenceList","metadata":{"resourceVersion":"9","continue":"x"},"items":[%b]}'
    found = json.loads(await without_objects(data % body(SPECS[name])))
    assert found == {"metadata": {"resourceVersion": "9"}, "items": []}


async def test_lists_are_emptied_and_other_answers_are_not() -> None:
    async def answer(request: web.Request) -> web.Response:
        status = int(request.query.get("status", "200"))
        return web.json_response({"metadata": {"resourceVersion": "9"}, "items": [{}]}, status=status)

    app = web.Application()
    app.router.add_get("/list", answer)
    async with TestServer(app) as server, aiohttp.ClientSession(response_class=response_class(Freshness())) as session:
        found = []
        for query in ("?limit=1", "", "?limit=1&status=410"):
            async with session.get(server.make_url(f"/list{query}")) as response:
                found.append((await response.json())["items"])
                assert (await response.json())["items"] == found[-1]
        assert found == [[], [{}], [{}]]


def test_kopf_lists_one_object_only() -> None:
    from pdinference.runtime.watch import settings  # noqa: PLC0415

    assert isinstance(chosen := settings([RESOURCE]), kopf.OperatorSettings)
    assert chosen.watching.chunk_size == 1
