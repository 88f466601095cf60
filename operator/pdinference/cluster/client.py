"""The API server, as raw JSON over the official client's transport.

The generated models of `kubernetes.aio` cost more time per object than everything else that the operator does with it,
and lose fields that they do not know. So objects stay dictionaries; connection, TLS and credentials are the client's.
"""

import asyncio
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)

from pdinference.api import names
from pdinference.cluster.errors import ApiError
from pdinference.cluster.objects import shallow

Json = dict[str, Any]

APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
APPLY_TEXT = f"{APPLY}; charset=utf-8"  # of this type the client library takes text as it is
_YAML = "application/yaml"
_TO_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CONNECTIONS = 64
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=10)
_OK = range(200, 300)
_OF_NO_OBJECT = "1"
"""A resource version that no object has: etcd's first revision is that of the empty store."""
_UNAUTHORIZED = 401


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
    """A page of a list has more bytes than the caller takes."""


def as_yaml(manifest: Json) -> str:
    r"""JSON that YAML reads the same: the API server reads the body of an apply as YAML.

    YAML knows no pairs of `\u` escapes for what is beyond 16 bits, such as an emoji, and wants control characters
    escaped that JSON leaves alone.
    """
    text = json.dumps(manifest, ensure_ascii=False)
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class ConfigurationError(Exception):
    """There is no way to the API server."""


async def load_configuration(kubeconfig: Path | None = None, context: str | None = None) -> Configuration:
    """Where the API server is and how to log in.

    Args:
        kubeconfig: A kubeconfig file; without one the service account of the pod is used, else $KUBECONFIG, else
            ~/.kube/config.
        context: In the kubeconfig; without one the current context.
    """
    configuration = Configuration()
    try:
        if _in_cluster(kubeconfig, context):
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            await load_kube_config(  # type: ignore[no-untyped-call]
                config_file=None if kubeconfig is None else str(kubeconfig),
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
    except (ConfigException, OSError) as error:
        raise ConfigurationError(f"cannot log in to a cluster: {error}") from error
    configuration.connection_pool_maxsize = _CONNECTIONS
    # The API server is reached directly unless the kubeconfig names a proxy, as Kopf does it; looking through the
    # environment and ~/.netrc would besides cost a thread switch for each request.
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration


def default_namespace(kubeconfig: Path | None = None, context: str | None = None) -> str:
    """The namespace that kubectl would use with the same configuration.

    Raises:
        ConfigurationError: The kubeconfig cannot be read, or lacks the context.
    """
    try:
        if _in_cluster(kubeconfig, context):
            return _OWN_NAMESPACE.read_text(encoding="ascii").strip()
        contexts, current = list_kube_config_contexts(None if kubeconfig is None else str(kubeconfig))  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise ConfigurationError(f"cannot log in to a cluster: {error}") from error
    chosen = current if context is None else next((c for c in contexts if c["name"] == context), {})
    return str(chosen.get("context", {}).get("namespace") or "default")


def _in_cluster(kubeconfig: Path | None, context: str | None) -> bool:
    """Whether the service account of the pod is meant."""
    return kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ


class ApiServer:
    """Requests to one API server.

    Args:
        configuration: As `load_configuration` made it.
        kubeconfig: Where it came from; read again when the server no longer accepts the credentials.
        context: Which part of it.
        user_agent: What the API server's audit log calls this client.
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
            path: Of the list.
            most: Bytes; what is left of a longer answer is not read.
            query: With `limit` and `continue`.

        Raises:
            PageTooLargeError: The answer is longer.
        """
        return await self._exchanged("GET", path, query=query, most=most)

    async def apply(self, path: str, manifest: Json, *, manager: str, force: bool = True) -> Json:
        """Server-side apply; the result is the live object.

        Args:
            path: Of the object.
            manifest: What the manager wants to hold.
            manager: Who applies.
            force: Whether to take fields from other managers that want another value.
        """
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._request("PATCH", path, query=query, body=as_yaml(manifest), content_type=APPLY_TEXT)

    async def apply_new(self, path: str, manifest: Json, *, manager: str) -> Json:
        """Server-side apply that only creates: an object that exists stays as it is.

        The API server compares the resource version of an apply with that of the object, and ignores it where there is
        no object. So one request does what a read and an apply would do, and nothing can happen between the two.

        Raises:
            ApiError: With status 409, an object of this name exists.
        """
        metadata = {**manifest["metadata"], "resourceVersion": _OF_NO_OBJECT}
        return await self.apply(path, {**manifest, "metadata": metadata}, manager=manager)

    async def create(self, path: str, manifest: Json) -> Json:
        """Create an object."""
        return await self._request("POST", path, body=manifest)

    async def create_from_yaml(self, path: str, manifest: Json) -> Json:
        """Create an object whose untyped parts (`RawExtension`) are stored as the API server itself writes JSON.

        Of a request in JSON it stores the bytes of these parts as they came, and finds them changed by the first patch.
        """
        return await self._request("POST", path, body=as_yaml(manifest), content_type=_YAML)

    async def replace(self, path: str, manifest: Json) -> Json:
        """Replace an object, or a subresource of one."""
        return await self._request("PUT", path, body=manifest)

    async def merge(self, path: str, patch: Json) -> Json:
        """JSON merge patch."""
        return await self._request("PATCH", path, body=patch, content_type=MERGE_PATCH)

    async def delete(self, path: str, *, uid: str, resource_version: str = "") -> None:
        """Delete this very object, in this very version, and in the background what it owns."""
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
        except RecursionError:  # a stored object that no parser can read; its status can be written all the same
            result = msgspec.json.decode(await asyncio.to_thread(shallow, data))
        return result

    async def _exchanged(self, method: str, path: str, **details: Any) -> bytes:
        request = _Request(method, path, **details)
        client = self._client
        status, headers, data = await _exchange(client, request)
        if status == _UNAUTHORIZED:  # a kubeconfig's credentials expired; a service account's renew themselves
            await self._renew(client)
            status, headers, data = await _exchange(self._client, request)
        if status not in _OK:
            raise ApiError.from_response(status, headers, data)
        return data

    async def _renew(self, refused: ApiClient) -> None:
        """Log in again, once, however many requests were refused."""
        async with self._renewal:
            if self._client is refused:
                self._connect(await load_configuration(self._kubeconfig, self._context))
                await refused.close()  # type: ignore[no-untyped-call]


async def _exchange(client: ApiClient, request: _Request) -> tuple[int, Mapping[str, str], bytes]:
    headers = {"Accept": request.accept, "Content-Type": request.content_type, "User-Agent": client.user_agent}
    url = client.configuration.host + request.path + (f"?{urlencode(request.query)}" if request.query else "")
    try:
        await client.update_params_for_auth(headers, [], ["BearerToken"], request.path, request.method, request.body)
        response = await client.rest_client.request(  # type: ignore[no-untyped-call]
            request.method, url, headers=headers, body=request.body, _request_timeout=_TIMEOUT
        )
        data = await (response.read() if request.most is None else _bounded(response.response, request.most))
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ApiError.unreachable(error) from error
    return response.status, response.headers, data


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
