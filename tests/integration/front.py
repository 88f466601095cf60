"""A proxy in front of the API server: a test sees each request of the operator, and may act before it.

It may also keep an answer back, that of a watch for example.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from kubernetes.aio.client import ApiClient
from yarl import URL

from pdinference.cluster.client import load_configuration

Before = Callable[[web.Request], Awaitable[None]]
_HOP_BY_HOP = frozenset({"connection", "host", "transfer-encoding"})


async def _at_once(_: web.Request) -> None:
    pass


@asynccontextmanager
async def in_front(
    kubeconfig: Path, folder: Path, before: Before, *, before_answer: Before = _at_once
) -> AsyncIterator[Path]:
    """A kubeconfig of a server that passes everything on.

    Args:
        kubeconfig: Where the API server is, and who calls it: what clients say of themselves is passed on, too.
        folder: Where the other kubeconfig is written to.
        before: Done before a request is passed on.
        before_answer: Done before each part of its answer is passed back.
    """
    configuration = await load_configuration(kubeconfig)
    async with (
        ApiClient(configuration) as client,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=client.rest_client.ssl_context),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as session,
    ):

        async def pass_on(request: web.Request) -> web.StreamResponse:
            await before(request)
            url = URL(configuration.host + request.raw_path, encoded=True)
            headers, body = _passed(request.headers), await request.read() or None
            async with session.request(request.method, url, headers=headers, data=body) as answer:
                response = web.StreamResponse(status=answer.status, headers=_passed(answer.headers))
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await before_answer(request)
                    await response.write(chunk)
                return response

        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield _written(kubeconfig, folder, f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()


def _passed(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(key, value) for key, value in headers.items() if key.lower() not in _HOP_BY_HOP]


def _written(kubeconfig: Path, folder: Path, server: str) -> Path:
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": server}
    path = folder / "front.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
