"""Client of the API server: raw JSON over the transport of the official client.

The generated models of `kubernetes.aio` dominate the time per object and drop unknown fields, so objects stay
dictionaries. The official client provides connections, TLS and credentials.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from pdinference.api import names
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kubeconfig import UNREADABLE, ConfigurationError, chosen_context, unusable
from pdinference.cluster.objects import shallow

Json = dict[str, Any]

APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY_TEXT = f"{APPLY}; charset=utf-8"  # the client library sends text of this type unchanged
_YAML = "application/yaml"
_TO_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CONNECTIONS = 64
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=10)
_OK = range(200, 300)
_OF_NO_OBJECT = "1"
"""A resource version that no object has: revision 1 of etcd is the empty store."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | str | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    most: int | None = None


class PageTooLargeError(Exception):
    """A page of a list exceeds the caller's limit in bytes."""


def as_yaml(manifest: Json) -> str:
    r"""JSON that is also YAML with the same meaning, because the API server parses the body of an apply as YAML.

    YAML does not support pairs of `\u` escapes for characters beyond 16 bits, such as emoji. It requires escapes for
    some control characters that JSON allows.
    """
    text = json.dumps(manifest, ensure_ascii=False)
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


async def load_configuration(kubeconfig: Path | None = None, context: str | None = None) -> Configuration:
    """Load address and credentials of the API server.

    Args:
        kubeconfig: A kubeconfig file. Default: the pod's service account, then $KUBECONFIG, then ~/.kube/config.
        context: Context of the kubeconfig. Default: the current context.

    Raises:
        ConfigurationError: It cannot be read, or lacks the context.
    """
    configuration = Configuration()
    if _in_cluster(kubeconfig, context):
        _load_service_account(configuration)
    else:
        await _load_kubeconfig(configuration, kubeconfig, context)
    configuration.connection_pool_maxsize = _CONNECTIONS
    # A proxy is used only if the kubeconfig names one, as in Kopf. Reading proxies from the environment and ~/.netrc
    # would cost a thread switch for each request.
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration


def default_namespace(kubeconfig: Path | None = None, context: str | None = None) -> str:
    """The namespace that kubectl uses with the same configuration.

    Raises:
        ConfigurationError: The kubeconfig cannot be read, or lacks the context.
    """
    if _in_cluster(kubeconfig, context):
        return _OWN_NAMESPACE.read_text(encoding="ascii").strip()
    return str(chosen_context(kubeconfig, context).get("namespace") or "default")


def _load_service_account(configuration: Configuration) -> None:
    try:
        load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise ConfigurationError(f"The pod's service account cannot be used: {error}. Pass --kubeconfig.") from error


async def _load_kubeconfig(configuration: Configuration, kubeconfig: Path | None, context: str | None) -> None:
    chosen_context(kubeconfig, context)
    try:
        await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=None if kubeconfig is None else str(kubeconfig),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except UNREADABLE as error:
        raise unusable(error, kubeconfig) from error


def _in_cluster(kubeconfig: Path | None, context: str | None) -> bool:
    """Whether to use the pod's service account."""
    return kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ


class ApiServer:
    """Requests to one API server.

    Args:
        configuration: Result of `load_configuration`.
        kubeconfig: Source of the configuration. It is read again when the server rejects the credentials.
        context: Context of the kubeconfig.
        user_agent: Name of this client in the audit log of the API server.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        user_agent: str = names.FIELD_MANAGER,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._user_agent = user_agent
        self._renewal = asyncio.Lock()
        self._connect(configuration)

    def _connect(self, configuration: Configuration) -> None:
        self._client = ApiClient(configuration)
        self._client.user_agent = self._user_agent

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        """Read an object or a list."""
        return await self._request("GET", path, query=query, accept=accept)

    async def page(self, path: str, *, most: int, **query: str) -> bytes:
        """Read a page of a list, as JSON.

        Args:
            path: URL path of the list.
            most: Maximum size in bytes. The rest of a longer response is not read.
            query: Query parameters, such as `limit` and `continue`.

        Raises:
            PageTooLargeError: The response is longer.
        """
        return await self._exchanged("GET", path, query=query, most=most)

    async def watch(self, path: str, *, seconds: int, silence: float, **query: str) -> AsyncIterator[Json]:
        """Events of a list, until the API server ends the watch, or nothing has come for a while.

        Args:
            path: Of the list.
            seconds: After which the API server ends it.
            silence: Seconds without an event or a bookmark after which it ends: its connection may be dead. The next
                request tells whether the API server is there.
            query: With `resourceVersion`, and selectors.

        Raises:
            ApiError: The watch could not begin, or broke off.
        """
        options = {"watch": "true", "timeoutSeconds": str(seconds), **query}
        async with self._opened(_Request("GET", path, query=options), silence) as stream:
            with suppress(aiohttp.SocketTimeoutError):
                async for line in stream.content:
                    yield msgspec.json.decode(line)

    async def chunks(self, path: str, **query: str) -> AsyncIterator[bytes]:
        """A response of any length, such as a log, as it comes.

        Raises:
            ApiError: It could not begin, or broke off.
        """
        async with self._opened(_Request("GET", path, query=query, accept="*/*"), silence=None) as stream:
            async for chunk in stream.content.iter_any():
                yield chunk

    @asynccontextmanager
    async def websocket(self, path: str, protocol: str, **query: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket to a subresource, such as `portforward` of a pod. It takes no limit of time.

        Raises:
            ApiError: The API server does not open it.
        """
        client, headers = self._client, {"User-Agent": self._user_agent}
        await client.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        rest = client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()  # as in kubernetes.aio.stream
        url = f"{client.configuration.host}{path}?{urlencode(query)}"
        proxy = {"proxy": rest.proxy, "proxy_headers": rest.proxy_headers} if rest.proxy else {}
        try:
            opened = await rest.pool_manager.ws_connect(url, headers=headers, protocols=[protocol], **proxy)
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "Refused", f"{path}: {error.message} (HTTP {error.status})") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError.unreachable(error) from error
        async with opened as socket:
            yield socket

    @asynccontextmanager
    async def _opened(self, request: _Request, silence: float | None) -> AsyncIterator[aiohttp.ClientResponse]:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT.sock_connect, sock_read=silence)
        try:
            response = await _sent(self._client, request, limits)
            if response.status not in _OK:
                raise ApiError.from_response(response.status, response.headers, await response.read())
            async with response.response as stream:
                yield stream
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError.unreachable(error) from error

    async def apply(self, path: str, manifest: Json, *, manager: str, force: bool = True) -> Json:
        """Server-side apply. Returns the live object.

        Args:
            path: URL path of the object.
            manifest: The fields that the manager applies.
            manager: The field manager.
            force: Whether to take over fields in conflict with other managers.
        """
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._request("PATCH", path, query=query, body=as_yaml(manifest), content_type=APPLY_TEXT)

    async def apply_new(self, path: str, manifest: Json, *, manager: str) -> Json:
        """Server-side apply that only creates. An existing object stays unchanged.

        The API server compares the resource version of an apply with that of the object, and ignores it if there is no
        object. So one atomic request replaces a read and an apply.

        Raises:
            ApiError: Status 409 if an object of this name exists.
        """
        metadata = {**manifest["metadata"], "resourceVersion": _OF_NO_OBJECT}
        return await self.apply(path, {**manifest, "metadata": metadata}, manager=manager)

    async def create(self, path: str, manifest: Json, **query: str) -> Json:
        """Create an object; nothing is stored with `dryRun="All"`."""
        return await self._request("POST", path, body=manifest, query=query)

    async def create_from_yaml(self, path: str, manifest: Json) -> Json:
        """Create an object from YAML, so that untyped fields (`RawExtension`) are stored in the server's own JSON form.

        From a JSON request the API server stores the bytes of these fields unchanged. The first patch would then count
        as a change of them.
        """
        return await self._request("POST", path, body=as_yaml(manifest), content_type=_YAML)

    async def replace(self, path: str, manifest: Json, **query: str) -> Json:
        """Replace an object, or a subresource of one; nothing is stored with `dryRun="All"`."""
        return await self._request("PUT", path, body=manifest, query=query)

    async def merge(self, path: str, patch: Json, *, manager: str | None = None) -> Json:
        """JSON merge patch. The field manager is the client's user agent unless another one is named."""
        query = {} if manager is None else {"fieldManager": manager}
        return await self._request("PATCH", path, query=query, body=patch, content_type=MERGE_PATCH)

    async def delete(self, path: str, *, uid: str, resource_version: str = "") -> None:
        """Delete an object if uid and version match. Its dependents are deleted in the background."""
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": preconditions,
        }
        await self._request("DELETE", path, body=options)

    async def _request(self, method: str, path: str, **details: Any) -> Json:
        data = await self._exchanged(method, path, **details)
        try:
            result: Json = msgspec.json.decode(data)
        except RecursionError:  # the object is nested too deeply to parse, but its status can be written
            result = msgspec.json.decode(await asyncio.to_thread(shallow, data))
        return result

    async def _exchanged(self, method: str, path: str, **details: Any) -> bytes:
        request = _Request(method, path, **details)
        client = self._client
        status, headers, data = await _exchange(client, request)
        if status == HTTPStatus.UNAUTHORIZED:  # credentials of a kubeconfig expired; service account tokens are renewed
            await self._renew(client)
            status, headers, data = await _exchange(self._client, request)
        if status not in _OK:
            raise ApiError.from_response(status, headers, data)
        return data

    async def _renew(self, refused: ApiClient) -> None:
        """Load new credentials, once for all concurrent requests that were rejected."""
        async with self._renewal:
            if self._client is refused:
                self._connect(await load_configuration(self._kubeconfig, self._context))
                await refused.close()  # type: ignore[no-untyped-call]


async def _exchange(client: ApiClient, request: _Request) -> tuple[int, Mapping[str, str], bytes]:
    try:
        response = await _sent(client, request, _TIMEOUT)
        data = await (response.read() if request.most is None else _bounded(response.response, request.most))
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ApiError.unreachable(error) from error
    return response.status, response.headers, data


async def _sent(client: ApiClient, request: _Request, limits: aiohttp.ClientTimeout) -> Any:
    headers = {"Accept": request.accept, "Content-Type": request.content_type, "User-Agent": client.user_agent}
    url = client.configuration.host + request.path + (f"?{urlencode(request.query)}" if request.query else "")
    await client.update_params_for_auth(headers, [], ["BearerToken"], request.path, request.method, request.body)
    return await client.rest_client.request(  # type: ignore[no-untyped-call]
        request.method, url, headers=headers, body=request.body, _request_timeout=limits
    )


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    chunks, length = [], 0
    async for chunk in response.content.iter_any():
        length += len(chunk)
        if length > most:
            response.close()
            raise PageTooLargeError
        chunks.append(chunk)
    response.release()
    return b"".join(chunks)
