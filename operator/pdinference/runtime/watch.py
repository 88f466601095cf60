"""Kopf as an informer: it lists, watches and reconnects. Objects go from its streams to the cache and the queue.

Features of Kopf that write are off: finalizers, annotations, peering, posting of Events. Reconciles make all writes.

Kopf finds out at its start which kinds the cluster serves, and ends if it no longer serves one of them. Optional kinds
may come and go, so Kopf is given each of them when it is served, and a watch waits while it is not.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import kopf
from kopf._cogs.structs.references import Insights  # not exported, although `kopf.operator` takes it
from kubernetes.aio.client import ApiClient

from pdinference.api import names
from pdinference.cluster.client import load_configuration
from pdinference.cluster.kinds import Kind
from pdinference.runtime.freshness import Freshness, response_class, trace
from pdinference.runtime.stream import Take

INACTIVITY_S = 70.0
"""Silence after which Kopf reconnects a watch; API servers send bookmarks every minute."""
_BACKOFF_LIMIT_S = 30.0
_UNSERVED_S = 10.0
"""Time between two attempts to watch a kind that the cluster no longer serves."""
_NAMESPACE = re.compile(r"/namespaces/[^/]+(?=/[^/]+$)")

OnEvent = Callable[[Kind, Mapping[str, Any], bool], None]
UntilServed = Callable[[Kind], Awaitable[None]]


class _Backoffs:
    """Endless delays: a watch must survive any outage, and Kopf stops when the delays end."""

    def __iter__(self) -> Iterator[float]:
        delay = 1.0
        while True:
            yield delay
            delay = min(_BACKOFF_LIMIT_S, delay * 2)


def registry(kinds: Collection[Kind], session: Callable[[], Awaitable[kopf.AiohttpSession]]) -> kopf.OperatorRegistry:
    """Handlers, without which Kopf does not watch these kinds, and the login."""
    handlers = kopf.OperatorRegistry()
    for kind in (kind for kind in kinds if not kind.optional):
        kopf.on.event(kind.group, kind.version, kind.plural, registry=handlers, id=kind.plural)(_leave)

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return await session()

    return handlers


async def _leave(**_: Any) -> None:
    """Never called: objects are taken from the stream (`EventStream`)."""


def taker(kinds: Collection[Kind], on_event: OnEvent) -> Callable[[str], Take | None]:
    """What to do with the objects of a watch, by the path of its list, in a namespace or in all."""

    def of(path: str) -> Take | None:
        kind = _kind_at(path, kinds)
        return None if kind is None else partial(on_event, kind)

    return of


def _kind_at(path: str, kinds: Collection[Kind]) -> Kind | None:
    """The kind of a list, by its path; None for another kind."""
    everywhere = _NAMESPACE.sub("", path)  # a kubeconfig's server may have a path of its own before this
    return next((kind for kind in kinds if everywhere.endswith(kind.path(None))), None)


def settings(kinds: Collection[Kind]) -> kopf.OperatorSettings:
    """Kopf's settings."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.watching.inactivity_timeout = INACTIVITY_S
    chosen.watching.chunk_size = 1  # only the resource version of a list is used
    chosen.networking.error_backoffs = _Backoffs()
    for kind in kinds:
        if kind.selector:
            chosen.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector
    return chosen


async def watch(
    on_event: OnEvent,
    *,
    kinds: Collection[Kind],
    freshness: Freshness,
    kubeconfig: Path | None,
    namespaces: Collection[str],
    until_served: UntilServed,
    stop: Any,
    ready: Any,
) -> None:
    """Watch until `stop` is set.

    Args:
        on_event: Called with each object, and whether it was deleted.
        kinds: What to watch.
        freshness: Records the arrival of bytes.
        kubeconfig: Path of the kubeconfig; None in a pod.
        namespaces: The namespaces to watch; empty for the whole cluster.
        until_served: Waits until the cluster serves an optional kind.
        stop: Set to end.
        ready: Set when Kopf has started.
    """
    insights = Insights()
    async with asyncio.TaskGroup() as group:
        optional = [
            group.create_task(_add_when_served(kind, insights, until_served)) for kind in kinds if kind.optional
        ]
        await kopf.operator(
            registry=registry(kinds, lambda: _session(freshness, kinds, on_event, kubeconfig)),
            settings=settings(kinds),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=list(namespaces),
            insights=insights,
            stop_flag=stop,
            ready_flag=ready,
        )
        for task in optional:
            task.cancel()


async def _add_when_served(kind: Kind, insights: Insights, until_served: UntilServed) -> None:
    await insights.ready_resources.wait()  # until then Kopf replaces all kinds
    await until_served(kind)
    async with insights.revised:
        insights.watched_resources.add(kopf.Resource(kind.group, kind.version, kind.plural, namespaced=True))
        insights.revised.notify_all()


async def _session(
    freshness: Freshness, kinds: Collection[Kind], on_event: OnEvent, kubeconfig: Path | None
) -> kopf.AiohttpSession:
    """A session with the official client's TLS settings and credentials, refreshed before each request."""
    configuration = await load_configuration(kubeconfig)
    client = ApiClient(configuration)

    async def authorize(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.server_hostname = configuration.tls_server_name
        await client.update_params_for_auth(
            request.headers, [], ["BearerToken"], request.url.path, request.method, None
        )
        return await handler(request)

    async def wait_for_kind(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        kind = _kind_at(request.url.path, kinds)
        response = await handler(request)
        while response.status == HTTPStatus.NOT_FOUND and kind is not None and kind.optional:
            response.close()
            await asyncio.sleep(_UNSERVED_S)
            response = await handler(request)
        return response

    return kopf.AiohttpSession(
        server=configuration.host,
        aiohttp_session=aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=client.rest_client.ssl_context),
            proxy=configuration.proxy,
            middlewares=(wait_for_kind, authorize),
            trace_configs=[trace(freshness)],
            response_class=response_class(freshness, taker(kinds, on_event)),
            headers={"User-Agent": names.FIELD_MANAGER},
        ),
    )
