"""Kopf as an informer: it lists, watches and reconnects. Its handlers only update the cache and the queue.

Features of Kopf that write are off: finalizers, annotations, peering, posting of Events. Reconciles make all writes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory
from kubernetes.aio.client import ApiClient

from pdinference.api import names
from pdinference.cluster.client import load_configuration
from pdinference.cluster.kinds import Kind
from pdinference.runtime.freshness import Freshness, response_class, trace

INACTIVITY_S = 70.0
"""Silence after which Kopf reconnects a watch; API servers send bookmarks every minute."""
_BACKOFF_LIMIT_S = 30.0

OnEvent = Callable[[Kind, Mapping[str, Any], bool], None]


class _Stateless(kopf.DiffBaseStorage):
    """Disables Kopf's copy of each object's last state: an informer does not need it, and it is costly."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        """Stores nothing."""


class _NoMemories(ResourceMemories):
    """Discards Kopf's record of each object (2 KiB) after each event; handlers of events do not need it."""

    async def recall(self, *arguments: Any, **options: Any) -> ResourceMemory:
        return await super().recall(*arguments, **{**options, "ephemeral": True})


class _Backoffs:
    """Endless delays: a watch must survive any outage, and Kopf stops when the delays end."""

    def __iter__(self) -> Iterator[float]:
        delay = 1.0
        while True:
            yield delay
            delay = min(_BACKOFF_LIMIT_S, delay * 2)


def registry(
    kinds: Collection[Kind], on_event: OnEvent, freshness: Freshness, kubeconfig: Path | None
) -> kopf.OperatorRegistry:
    """Kopf's handlers for these kinds, and its login."""
    handlers = kopf.OperatorRegistry()
    for kind in kinds:
        _watch(handlers, kind, on_event)

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return await _session(freshness, kubeconfig)

    return handlers


def _watch(handlers: kopf.OperatorRegistry, kind: Kind, on_event: OnEvent) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=handlers, id=kind.plural)
    async def observe(event: kopf.RawEvent, **_: Any) -> None:
        on_event(kind, event["object"], event["type"] == "DELETED")


def settings(kinds: Collection[Kind]) -> kopf.OperatorSettings:
    """Kopf's settings."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.watching.inactivity_timeout = INACTIVITY_S
    chosen.watching.chunk_size = 1  # only the resource version of a list is used
    chosen.networking.error_backoffs = _Backoffs()
    chosen.persistence.diffbase_storage = _Stateless()
    chosen.queueing.idle_timeout = 1.0
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
        registry=registry(kinds, on_event, freshness, kubeconfig),
        settings=settings(kinds),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
        ready_flag=ready,
        memories=_NoMemories(),
    )


async def _session(freshness: Freshness, kubeconfig: Path | None) -> kopf.AiohttpSession:
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
            response_class=response_class(freshness),
            headers={"User-Agent": names.FIELD_MANAGER},
        ),
    )
