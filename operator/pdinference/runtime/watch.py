"""Kopf as an informer: it lists, watches and reconnects. Objects go from its streams to the cache and the queue.

Features of Kopf that write are off: finalizers, annotations, peering, posting of Events. Reconciles make all writes.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import kopf
from kubernetes.aio.client import ApiClient

from pdinference.api import names
from pdinference.cluster.client import load_configuration
from pdinference.cluster.kinds import Kind
from pdinference.runtime.freshness import Freshness, response_class, trace
from pdinference.runtime.stream import Take

INACTIVITY_S = 70.0
"""Silence after which Kopf reconnects a watch; API servers send bookmarks every minute."""
_BACKOFF_LIMIT_S = 30.0
_NAMESPACE = re.compile(r"/namespaces/[^/]+(?=/[^/]+$)")

OnEvent = Callable[[Kind, Mapping[str, Any], bool], None]


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
    for kind in kinds:
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
        everywhere = _NAMESPACE.sub("", path)  # a kubeconfig's server may have a path of its own before this
        kind = next((kind for kind in kinds if everywhere.endswith(kind.path(None))), None)
        return None if kind is None else partial(on_event, kind)

    return of


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
    stop: Any,
    ready: Any,
) -> None:
    """Watch until `stop` is set."""
    await kopf.operator(
        registry=registry(kinds, lambda: _session(freshness, taker(kinds, on_event), kubeconfig)),
        settings=settings(kinds),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
        ready_flag=ready,
    )


async def _session(
    freshness: Freshness, taker: Callable[[str], Take | None], kubeconfig: Path | None
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

    return kopf.AiohttpSession(
        server=configuration.host,
        aiohttp_session=aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=client.rest_client.ssl_context),
            proxy=configuration.proxy,
            middlewares=(authorize,),
            trace_configs=[trace(freshness)],
            response_class=response_class(freshness, taker),
            headers={"User-Agent": names.FIELD_MANAGER},
        ),
    )
