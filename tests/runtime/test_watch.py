"""Kopf's watches against an API server on loopback."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from pdinference.api.names import GROUP
from pdinference.cluster.kinds import BATCH, HTTP_ROUTE, JOB, POD, RESOURCE, Kind
from pdinference.runtime import watch as watching
from pdinference.runtime.freshness import Freshness

VERSION = RESOURCE.version
STREAM = f"/apis/{GROUP}/{VERSION}/{RESOURCE.plural}"
SECONDS_BETWEEN_BOOKMARKS = 60


class SilentServer:
    """An API server whose watches begin and then deliver nothing, though their connections stay."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.reconnected = asyncio.Event()
        self.watched: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def serve(self, folder: Path) -> AsyncIterator[Path]:
        """Listen; a kubeconfig comes back."""
        app = web.Application()
        version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
        group = {"name": GROUP, "versions": [version], "preferredVersion": version}
        documents: dict[str, dict[str, Any]] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": [_resource("namespaces", "Namespace")]},  # Kopf waits for it
            "/apis": {"groups": [group]},
            f"/apis/{GROUP}/{VERSION}": {"resources": [_resource(RESOURCE.plural, "PDInference")]},
        }
        for path, document in documents.items():
            app.router.add_get(path, partial(_answer, document))
        app.router.add_get(STREAM, self._objects)
        app.router.add_get(HTTP_ROUTE.path(None), self._objects)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield _kubeconfig(folder, runner.addresses[0][1])
        finally:
            self._ended.set()
            await runner.cleanup()

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"kind": "PDInferenceList", "metadata": {"resourceVersion": "1"}, "items": []})
        self.begun[request.path] += 1
        self.watched[request.path].set()
        if self.begun[request.path] > 1:
            self.reconnected.set()
        response = web.StreamResponse()
        await response.prepare(request)
        await self._ended.wait()
        return response


class EventServer(SilentServer):
    """An API server whose first watch brings one object and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.since: list[str] = []

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            self.since.append(request.query["resourceVersion"])
        if "watch" not in request.query or len(self.since) > 1:
            return await super()._objects(request)
        self.begun[request.path] += 1
        metadata = {"name": "llama", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
        event = {"type": "ADDED", "object": {"kind": "PDInference", "metadata": metadata, "spec": {}}}
        return web.json_response(event)


class OptionalServer(SilentServer):
    """An API server that serves HTTPRoutes, which Kopf cannot discover, and refuses some watches of them."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        if request.path == HTTP_ROUTE.path(None) and "watch" in request.query and self.refusals:
            self.refusals -= 1
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        return await super()._objects(request)


def _resource(plural: str, kind: str) -> dict[str, Any]:
    return {"name": plural, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["list", "watch", "patch"]}


async def _answer(document: dict[str, Any], _: web.Request) -> web.Response:
    return web.json_response(document)


async def served(_: Kind) -> None:
    """The kind is served from the beginning."""


def _kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


async def test_a_silent_watch_is_reconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No end and no error arrives, as behind a firewall that has forgotten the connection."""
    monkeypatch.setattr(watching, "INACTIVITY_S", 0.2)
    server, stop, ready, freshness = SilentServer(), asyncio.Event(), asyncio.Event(), Freshness()
    async with server.serve(tmp_path) as kubeconfig:
        running = asyncio.create_task(
            watching.watch(
                lambda *_: None,
                kinds=[RESOURCE],
                freshness=freshness,
                kubeconfig=kubeconfig,
                namespaces=(),
                until_served=served,
                stop=stop,
                ready=ready,
            )
        )
        waiting = asyncio.create_task(server.reconnected.wait())
        await asyncio.wait({running, waiting}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done()
        assert server.reconnected.is_set(), f"watches begun: {dict(server.begun)}"
        assert freshness.stalled(60) == []
        stop.set()
        await asyncio.wait({running})


async def test_an_object_is_taken_and_the_watch_goes_on_from_its_version(tmp_path: Path) -> None:
    server, stop, ready = EventServer(), asyncio.Event(), asyncio.Event()
    taken: list[tuple[str, str, bool]] = []
    async with server.serve(tmp_path) as kubeconfig:
        running = asyncio.create_task(
            watching.watch(
                lambda kind, body, deleted: taken.append((kind.name, body["metadata"]["name"], deleted)),
                kinds=[RESOURCE],
                freshness=Freshness(),
                kubeconfig=kubeconfig,
                namespaces=(),
                until_served=served,
                stop=stop,
                ready=ready,
            )
        )
        waiting = asyncio.create_task(server.reconnected.wait())
        await asyncio.wait({running, waiting}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done()
        assert taken == [("PDInference", "llama", False)]
        assert server.since == ["1", "7"]
        stop.set()
        await asyncio.wait({running})


async def test_an_optional_kind_is_watched_once_the_cluster_serves_it(tmp_path: Path) -> None:
    server, stop, ready, installed = OptionalServer(0), asyncio.Event(), asyncio.Event(), asyncio.Event()
    listed = asyncio.Event()

    async def until_served(kind: Kind) -> None:
        assert kind == HTTP_ROUTE
        await installed.wait()

    async with server.serve(tmp_path) as kubeconfig:
        running = asyncio.create_task(
            watching.watch(
                lambda *_: None,
                kinds=[RESOURCE, HTTP_ROUTE],
                freshness=Freshness(on_listed=listed.set),
                kubeconfig=kubeconfig,
                namespaces=(),
                until_served=until_served,
                stop=stop,
                ready=ready,
            )
        )
        await _first(server.watched[STREAM], running)
        assert server.begun.keys() == {STREAM}
        listed.clear()
        installed.set()
        await _first(listed, running)  # so that a list of all objects follows
        await _first(server.watched[HTTP_ROUTE.path(None)], running)
        stop.set()
        await running


async def test_an_optional_kind_that_is_gone_for_a_time_does_not_end_the_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_UNSERVED_S", 0.01)
    server, stop, ready = OptionalServer(3), asyncio.Event(), asyncio.Event()
    async with server.serve(tmp_path) as kubeconfig:
        running = asyncio.create_task(
            watching.watch(
                lambda *_: None,
                kinds=[RESOURCE, HTTP_ROUTE],
                freshness=Freshness(),
                kubeconfig=kubeconfig,
                namespaces=(),
                until_served=served,
                stop=stop,
                ready=ready,
            )
        )
        await _first(server.watched[HTTP_ROUTE.path(None)], running)
        assert server.refusals == 0
        stop.set()
        await running


async def _first(event: asyncio.Event, running: asyncio.Task[None]) -> None:
    """Wait for an event; fail if the watches end before it."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({running, waiting}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert not running.done()
    assert event.is_set()


@pytest.mark.parametrize("before", ["", "/k8s/clusters/c-1"])
@pytest.mark.parametrize("kind", [RESOURCE, BATCH, POD, JOB])
def test_the_kind_of_a_watch_is_known_by_its_path(kind: Kind, before: str) -> None:
    found: list[Kind] = []
    of = watching.taker([RESOURCE, BATCH, POD, JOB], lambda kind, _body, _deleted: found.append(kind))
    for path in (kind.path(None), kind.path("namespaces"), kind.path("pods")):
        take = of(before + path)
        assert take is not None
        take({}, False)
    assert found == [kind] * 3
    assert of(f"{before}/api/v1/namespaces") is None


def test_a_watch_with_bookmarks_is_left_alone_and_a_silent_one_is_not() -> None:
    """A healthy API server sends one about every minute; a silent watch means that the operator sees nothing."""
    found = watching.settings([RESOURCE]).watching.inactivity_timeout
    assert found is not None
    assert SECONDS_BETWEEN_BOOKMARKS < found < 2 * SECONDS_BETWEEN_BOOKMARKS
