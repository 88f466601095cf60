"""A connection to a router pod of a resource.

Tests: tests/cli/test_chat.py, tests/cli/test_bench.py
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
import click

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cli.chosen import chosen
from pdinference.cli.requests.forward import Forward
from pdinference.cli.requests.stages import Stages, stages_of
from pdinference.cli.requests.stream import Json, RequestError, StreamedAnswer, ask, models
from pdinference.cli.router_pods import ready_routers
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import POD
from pdinference.http_connections import Connector

_KEPT_S: Final = 600.0
"""How long an idle connection is kept."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=600)


@dataclass(frozen=True, slots=True)
class RouterForward:
    """A router pod to which requests can be sent.

    Attributes:
        name: Name of the resource.
        model: The model to ask.
    """

    api: ApiServer
    forward: Forward
    session: aiohttp.ClientSession
    url: str
    namespace: str
    name: str
    pod: str
    model: str
    headers: dict[str, str]

    async def ask(self, path: str, body: Json, show: Callable[[str], None] = lambda _: None) -> StreamedAnswer:
        """Send one request.

        Raises:
            RequestError: It has no complete answer.
        """
        headers = {**self.headers, "X-Request-Id": str(uuid.uuid4())}
        try:
            return await ask(self.session, f"{self.url}{path}", {**body, "model": self.model}, headers, show=show)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise RequestError(self.forward.error or f"The connection to {self.pod} broke off: {error}") from error

    async def stages(self, answer: StreamedAnswer) -> Stages | str:
        """The stages of an answer, or why they are not known."""
        return await stages_of(self.api, self.namespace, self.pod, answer.request_id, seconds=answer.total)


@asynccontextmanager
async def connected(
    api: ApiServer,
    namespace: str,
    name: str | None,
    *,
    api_key: str | None,
    model: str | None,
    connections: int = 1,
) -> AsyncIterator[RouterForward]:
    """Connections to a ready router pod, through each of which a first request went.

    Args:
        api: The API server.
        namespace: Namespace of the resource.
        name: Its name; None for the only one.
        api_key: Key for the router; None without one.
        model: The model to ask; None for the first one that the router names.
        connections: Connections that requests may use at a time.

    Raises:
        ClickException: No router pod is ready, or it refuses requests.
        ApiError: The API server returned an error.
    """
    resource = await chosen(api, namespace, name)
    known: str = resource["metadata"]["name"]
    pod = await _router_pod(api, namespace, known)
    tls = bool((resource["spec"].get("router") or {}).get("tls"))
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    forward = Forward(api, namespace, pod, names.ROUTER_PORT)
    # As with kubectl port-forward, the API server vouches for the pod. A certificate would be for another name.
    connector = Connector(limit=connections, ssl=False, keepalive_timeout=_KEPT_S)
    async with forward.listening() as port, aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
        url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        # All connections are open before the first request is measured.
        served, *_ = await asyncio.gather(*(_served(session, url, headers, forward, pod) for _ in range(connections)))
        asked = _model(model, served)
        yield RouterForward(api, forward, session, url, namespace, known, pod, asked, headers)


async def _router_pod(api: ApiServer, namespace: str, name: str) -> str:
    selector = names.selector_text(names.role_selector(name, Role.ROUTER))
    items = (await api.get(POD.path(namespace), labelSelector=selector)).get("items") or ()
    ready = ready_routers(items)
    if not ready:
        raise click.ClickException(f"{name} has no ready router pod. `kubectl pdi status {name}` says why.")
    return min(ready)


async def _served(
    session: aiohttp.ClientSession, url: str, headers: dict[str, str], forward: Forward, pod: str
) -> Sequence[str]:
    try:
        return await models(session, url, headers)
    except RequestError as error:
        raise click.ClickException(str(error)) from None
    except (aiohttp.ClientError, TimeoutError) as error:
        raise click.ClickException(forward.error or f"The pod {pod} cannot be reached: {error}") from None


def _model(asked: str | None, served: Sequence[str]) -> str:
    if asked is not None and asked not in served:
        raise click.ClickException(f"The router serves no model {asked}. It serves: {', '.join(served) or 'none'}.")
    if not served:
        raise click.ClickException("The router serves no model.")
    return asked or served[0]
