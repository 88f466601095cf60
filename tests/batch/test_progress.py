"""Progress is read only from the metrics of a batch's own runner."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from pdinference.api import names
from pdinference.batch.progress import BatchProgress, read_progress
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import POD, Owner
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.planning.batch import Progress
from pdinference.runner.progress import RunProgress as RunnerProgress
from tests.controllers import owned

NIGHTLY = Owner("ns", "nightly", names.BATCH_KIND)


@asynccontextmanager
async def serving(answer: Callable[[], web.Response]) -> AsyncIterator[int]:
    async def handle(_: web.Request) -> web.Response:
        return answer()

    app = web.Application()
    app.add_routes([web.get("/metrics", handle), web.get("/elsewhere", handle)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_what_the_runner_serves_is_understood() -> None:
    async with RunnerProgress(total=9, completed=4, failed=1).served("127.0.0.1", 0) as port:
        assert await read_progress("127.0.0.1", port, share=Share()) == Progress(9, 4, 1)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(status=500),
        lambda: web.Response(text=""),
        lambda: web.Response(text="other 1\n"),
        lambda: web.Response(body=b"\xff\xfe"),
        lambda: web.Response(text='pdinference_batch_requests{state="total"} x\n'),
        lambda: web.Response(text='pdinference_batch_requests{state="total"} NaN\n'),
        lambda: web.Response(text="#" * 10_000_000),
        lambda: web.Response(status=302, headers={"Location": "/elsewhere"}),
    ],
)
async def test_anything_else_is_no_progress(answer: Callable[[], web.Response]) -> None:
    async with serving(answer) as port:
        assert await read_progress("127.0.0.1", port, share=Share()) is None


async def test_counts_of_running_batches_are_read_beside_the_reconciles() -> None:
    """A runner that does not respond changes nothing, and its progress is forgotten with its pod."""
    cache, changed = Cache(), list[Owner]()
    runner = RunnerProgress(total=9, completed=4)
    async with runner.served("127.0.0.1", 0) as port:
        progress = BatchProgress(cache, on_change=changed.append, port=port)
        observe(cache, "a", "nightly", "127.0.0.1")
        observe(cache, "b", "weekly", "127.0.0.2")
        await progress.round()
        await progress.round()
        assert changed == [NIGHTLY], "once"
        assert progress.counts("a") == Progress(9, 4, 0)
        assert progress.counts("b") is None
        runner.completed = 5
        await progress.round()
        assert changed == [NIGHTLY] * 2
        observe(cache, "a", "nightly", "127.0.0.1", phase="Succeeded", version=2)
        await progress.round()
        assert progress.counts("a") is None


def observe(cache: Cache, pod: str, batch: str, address: str, *, phase: str = "Running", version: int = 1) -> None:
    metadata: dict[str, Any] = {"name": pod, "namespace": "ns", "uid": pod, "resourceVersion": str(version)}
    metadata = owned({**metadata, "labels": {names.LABEL_BATCH: batch}})
    body = {"metadata": metadata, "status": {"phase": phase, "podIP": address}}
    cache.observe(POD, body, deleted=False)


async def test_an_unreachable_runner_has_no_progress() -> None:
    async with RunnerProgress().served("127.0.0.1", 0) as port:
        pass
    assert await read_progress("127.0.0.1", port, share=Share()) is None
