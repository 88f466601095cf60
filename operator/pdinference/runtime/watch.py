"""Kopf as an informer: it lists, watches and reconnects. Objects go from its streams to the cache and the queue.

Features of Kopf that write are off: finalizers, annotations, peering, posting of Events. Reconciles make all writes.
Why objects do not go through Kopf's handlers: docs/adr/0003-kopf-as-an-informer.md.

Kopf finds out at its start which kinds the cluster serves, and ends if it no longer serves one of them. Optional kinds
may come and go, so each of them has a Kopf of its own, which is started when the kind is served. Its watch waits while
the kind is not served.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

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
_UNSERVED_S = 10.0
"""Time between two attempts to watch a kind that the cluster no longer serves."""
_DISCOVERY_S = 30.0
"""Time in which Kopf finds a kind that is served."""
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
    chosen.process.ultimate_exiting_timeout = None  # else Kopf kills the process 10 minutes after its tasks end
    for kind in kinds:
        if kind.selector:
            chosen.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector
    return chosen


class Watches:
    """The watches of all kinds.

    Args:
        on_event: Called with each object, and whether it was deleted.
        kinds: What to watch.
        freshness: Records the arrival of bytes.
        kubeconfig: Path of the kubeconfig; None in a pod.
        namespaces: The namespaces to watch; empty for the whole cluster.
        until_served: Waits until the cluster serves an optional kind.
        started: Called after each start of Kopf, which handles the signals of the process from then on.
    """

    def __init__(
        self,
        on_event: OnEvent,
        *,
        kinds: Collection[Kind],
        freshness: Freshness,
        kubeconfig: Path | None,
        namespaces: Collection[str],
        until_served: UntilServed,
        started: Callable[[], None],
    ) -> None:
        self._on_event = on_event
        self._kinds = kinds
        self._freshness = freshness
        self._kubeconfig = kubeconfig
        self._namespaces = namespaces
        self._until_served = until_served
        self._started = started

    async def run(self) -> None:
        """Watch until a watch fails, or this is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_kopf([kind for kind in self._kinds if not kind.optional]))
            for kind in self._kinds:
                if kind.optional:
                    group.create_task(self._watch_when_served(kind))

    async def _watch_when_served(self, kind: Kind) -> None:
        """Watch an optional kind.

        Kopf asks once which kinds are served. It may ask another API server than the one that served the kind, which
        does not know the kind yet. Then it never requests the kind, and is started anew.
        """
        while True:
            await self._until_served(kind)
            try:
                async with asyncio.timeout(_DISCOVERY_S) as discovery:
                    await self._run_kopf([kind], on_request=partial(discovery.reschedule, None))
            except TimeoutError:
                if not discovery.expired():
                    raise

    async def _run_kopf(self, kinds: Collection[Kind], on_request: Callable[[], None] = lambda: None) -> NoReturn:
        """Run Kopf until it fails.

        Its tasks are ended here, because `kopf.operator` would cancel every task that the process started after it.
        """
        tasks = await kopf.spawn_tasks(
            registry=registry(kinds, partial(self._session, kinds, on_request)),
            settings=settings(kinds),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=list(self._namespaces),
        )
        self._started()
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()
        raise RuntimeError(f"Kopf ended: {', '.join(task.get_name() for task in done)}")

    async def _session(self, kinds: Collection[Kind], on_request: Callable[[], None]) -> kopf.AiohttpSession:
        """A session with the official client's TLS settings and credentials, refreshed before each request."""
        configuration = await load_configuration(self._kubeconfig)
        client = ApiClient(configuration)

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            request.server_hostname = configuration.tls_server_name
            await client.update_params_for_auth(
                request.headers, [], ["BearerToken"], request.url.path, request.method, None
            )
            return await handler(request)

        async def wait_for_kind(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            kind = _kind_at(request.url.path, kinds)
            if kind is not None:
                on_request()
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
                trace_configs=[trace(self._freshness)],
                response_class=response_class(self._freshness, taker(kinds, self._on_event)),
                headers={"User-Agent": names.FIELD_MANAGER},
            ),
        )
