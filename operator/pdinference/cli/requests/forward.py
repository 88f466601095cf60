"""Connections to a port of a pod through the API server, as `kubectl port-forward` makes them.

A local port listens on 127.0.0.1. Each connection to it is a WebSocket to the pod's subresource `portforward`, with the
protocol `v4.channel.k8s.io`. Each message begins with the number of its channel, 0 for data and 1 for errors. The
first message of a channel has the port. NetworkPolicies do not apply, because the kubelet connects within the pod.

Tests: tests/cli/test_chat.py, tests/cli/test_top.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import aiohttp

from pdinference.api.plain_text import plain
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD

_PROTOCOL: Final = "v4.channel.k8s.io"
_DATA: Final = 0
_CHANNELS: Final = 2
_CHUNK: Final = 2**16
_RIGHT: Final = "You need the right to `get` and `create` the resource pods/portforward."


class Forward:
    """A local port for a port of a pod.

    Attributes:
        error: Why the last connection failed; empty if none has.
    """

    def __init__(self, api: ApiServer, namespace: str, pod: str, port: int) -> None:
        self._api = api
        self._path = f"{POD.path(namespace, pod)}/portforward"
        self._port = port
        self._connections: set[asyncio.Task[None]] = set()
        self.error = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """The local port, while it listens."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: some releases of Python print a traceback when the task of a coroutine that was passed to
        # start_server is cancelled (3.11.7 and 3.12.1, for example).
        task = asyncio.create_task(self._carry(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._api.websocket(self._path, _PROTOCOL, ports=str(self._port)) as socket:
                up = asyncio.create_task(_send(reader, socket))
                try:
                    await self._receive(socket, writer)
                finally:
                    up.cancel()
                    await asyncio.gather(up, return_exceptions=True)
        except ApiError as error:
            self.error = f"{error.message}. {_RIGHT}" if error.status == HTTPStatus.FORBIDDEN else error.message
        except (aiohttp.ClientError, OSError) as error:
            self.error = str(error)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
        begun: set[int] = set()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data or message.data[0] >= _CHANNELS:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)
                data = data[2:]  # the port
            if not data:
                continue
            if channel != _DATA:
                self.error = plain(data.decode(errors="replace"), 500)
                return
            writer.write(data)
            await writer.drain()


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while data := await reader.read(_CHUNK):
        await socket.send_bytes(bytes([_DATA]) + data)
