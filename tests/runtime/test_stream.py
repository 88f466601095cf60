"""Unreadable objects are handled before Kopf, whose lists and watches do not contain them."""

import json
from collections.abc import AsyncIterator

import aiohttp
import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pdinference.cluster.kinds import RESOURCE
from pdinference.cluster.objects import Json
from pdinference.runtime.freshness import Freshness, response_class
from pdinference.runtime.stream import EventStream, without_objects
from tests.cluster.large_objects import body, deep

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


async def lines(stream: EventStream) -> list[Json]:
    """The events that Kopf finds in the chunks."""
    data = b"".join([chunk async for chunk in stream.iter_chunked(2**20)])
    return [json.loads(line) for line in data.split(b"\n") if line]


class Watched:
    """A stream, and what was taken from it."""

    def __init__(self, data: bytes, size: int) -> None:
        self.taken: list[tuple[str, bool]] = []
        self._stream = EventStream(Reader(data, size), PATH, lambda: None, self._take)

    def _take(self, body: Json, deleted: bool) -> None:
        self.taken.append((body["metadata"]["name"], deleted))

    async def left(self) -> list[Json]:
        """What Kopf reads."""
        return await lines(self._stream)


@pytest.mark.parametrize("size", [1_000, 65_536, 10_000_000])
async def test_every_object_is_taken_and_its_version_left(size: int) -> None:
    types = ("ADDED", "MODIFIED", "DELETED")
    data = b"".join(
        b'{"type":"%b","object":%b}\n' % (event.encode(), body(spec, name=name, resourceVersion=str(number)))
        for number, (event, (name, spec)) in enumerate(zip(types, SPECS.items(), strict=True))
    )
    watched = Watched(data, size)
    left = await watched.left()
    assert watched.taken == [("flat", False), ("deep", False), ("large", True)]
    assert left == [
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(number)}}} for number in range(3)
    ]


async def test_what_brings_no_object_is_left_as_it_is() -> None:
    events = [
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
        {"type": "ERROR", "object": {"kind": "Status", "code": 410}},
    ]
    watched = Watched(b"".join(json.dumps(event).encode() + b"\n" for event in events), 1_000)
    assert await watched.left() == events
    assert watched.taken == []


async def test_what_is_no_event_does_not_end_the_watch() -> None:
    data = b'{"type":"ADDED","object":{"metadata":1}}\n' + b"\xff" * 300_000 + b'\n{"type":"BOOKMARK"}\n\n'
    assert await Watched(data, 1_000).left() == [{"type": "BOOKMARK"}]


async def test_an_object_that_cannot_be_taken_does_not_end_the_watch() -> None:
    def refuse(_body: Json, _deleted: bool) -> None:
        raise RuntimeError

    data = b'{"type":"ADDED","object":%b}\n{"type":"BOOKMARK"}\n' % body("{}")
    stream = EventStream(Reader(data, 1_000), PATH, lambda: None, refuse)
    assert await lines(stream) == [{"type": "BOOKMARK"}]


@pytest.mark.parametrize("name", SPECS)
async def test_of_a_list_only_the_version_is_left(name: str) -> None:
    data = b'{"kind":"PDInferenceList","metadata":{"resourceVersion":"9","continue":"x"},"items":[%b]}'
    found = await without_objects(data % body(SPECS[name]))
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
