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
        self.kinds = [RESOURCE]
        self.reconnected = asyncio.Event()
        self.watched: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def serve(self, folder: Path) -> AsyncIterator[Path]:
        """Listen; a kubeconfig comes back."""
        app = web.Application()
        app.router.add_get("/api", partial(_answer, {"versions": ["v1"]}))
        app.router.add_get("/api/v1", partial(_answer, {"resources": [_resource("namespaces", "Namespace")]}))
        app.router.add_get("/apis", self._groups)
        for kind in (RESOURCE, HTTP_ROUTE):
            app.router.add_get(f"/apis/{kind.api_version}", partial(self._group, kind))
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

    async def _groups(self, _: web.Request) -> web.Response:
        found = []
        for kind in self.kinds:
            version = {"groupVersion": kind.api_version, "version": kind.version}
            found.append({"name": kind.group, "versions": [version], "preferredVersion": version})
        return web.json_response({"groups": found})

    async def _group(self, kind: Kind, _: web.Request) -> web.Response:
        return web.json_response({"resources": [_resource(kind.plural, kind.name)]})

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
    """An API server that serves HTTPRoutes, and refuses some watches of them."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.kinds = [RESOURCE, HTTP_ROUTE]
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


@asynccontextmanager
async def running(server: SilentServer, folder: Path, **changed: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Watches of the server, until the end of the block."""
    arguments: dict[str, Any] = {
        "on_event": lambda *_: None,
        "kinds": [RESOURCE],
        "freshness": Freshness(),
        "namespaces": (),
        "until_served": served,
        "started": lambda: None,
        **changed,
    }
    async with server.serve(folder) as kubeconfig:
        before = asyncio.all_tasks()
        task = asyncio.create_task(watching.Watches(kubeconfig=kubeconfig, **arguments).run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=30)
            left = [one.get_name() for one in asyncio.all_tasks() - before if "watcher" in one.get_name()]
            assert not left


async def test_a_silent_watch_is_reconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No end and no error arrives, as behind a firewall that has forgotten the connection."""
    monkeypatch.setattr(watching, "INACTIVITY_S", 0.2)
    server, freshness = SilentServer(), Freshness()
    async with running(server, tmp_path, freshness=freshness) as task:
        await _first(server.reconnected, task)
        assert freshness.stalled(60) == []


async def test_an_object_is_taken_and_the_watch_goes_on_from_its_version(tmp_path: Path) -> None:
    server = EventServer()
    taken: list[tuple[str, str, bool]] = []

    def take(kind: Kind, body: Any, deleted: bool) -> None:
        taken.append((kind.name, body["metadata"]["name"], deleted))

    async with running(server, tmp_path, on_event=take) as task:
        await _first(server.reconnected, task)
        assert taken == [("PDInference", "llama", False)]
        assert server.since == ["1", "7"]


async def test_an_optional_kind_is_watched_once_the_cluster_serves_it(tmp_path: Path) -> None:
    server, installed, listed = OptionalServer(0), asyncio.Event(), asyncio.Event()

    async def until_served(kind: Kind) -> None:
        assert kind == HTTP_ROUTE
        await installed.wait()

    kinds, freshness = [RESOURCE, HTTP_ROUTE], Freshness(on_listed=listed.set)
    async with running(server, tmp_path, kinds=kinds, freshness=freshness, until_served=until_served) as task:
        await _first(server.watched[STREAM], task)
        assert server.begun.keys() == {STREAM}
        listed.clear()
        installed.set()
        await _first(listed, task)  # so that a list of all objects follows
        await _first(server.watched[HTTP_ROUTE.path(None)], task)


async def test_an_optional_kind_that_kopf_does_not_find_at_first_is_watched_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if one of several API servers did not know of a new kind yet."""
    monkeypatch.setattr(watching, "_DISCOVERY_S", 1.0)
    server, asked = OptionalServer(0), 0

    async def until_served(_: Kind) -> None:
        nonlocal asked
        asked += 1
        server.kinds = [RESOURCE, HTTP_ROUTE] if asked > 1 else [RESOURCE]

    async with running(server, tmp_path, kinds=[RESOURCE, HTTP_ROUTE], until_served=until_served) as task:
        await _first(server.watched[HTTP_ROUTE.path(None)], task)
        assert asked > 1


async def test_an_optional_kind_that_is_gone_for_a_time_does_not_end_the_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_UNSERVED_S", 0.01)
    server = OptionalServer(3)
    async with running(server, tmp_path, kinds=[RESOURCE, HTTP_ROUTE]) as task:
        await _first(server.watched[HTTP_ROUTE.path(None)], task)
        assert server.refusals == 0


async def test_the_end_of_kopf_cancels_no_task_of_others(tmp_path: Path) -> None:
    """`kopf.operator` cancels all tasks of the process that were started after it."""
    server, starts = SilentServer(), asyncio.Event()
    async with running(server, tmp_path, started=starts.set) as task:
        await _first(starts, task)
        other = asyncio.create_task(asyncio.Event().wait())
        await _first(server.watched[STREAM], task)
    assert task.cancelled()
    assert not other.done()
    other.cancel()


async def _first(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Wait for an event; fail if the watches end before it."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiting}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert not task.done()
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
