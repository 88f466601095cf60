"""A connection between the operator and the API server that a test can cut."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import yaml


class Proxy:
    """Forwards TCP connections while it is open.

    Args:
        host: Of the server.
        port: Of the server.
        listen: The address for clients.
    """

    def __init__(self, host: str, port: int, *, listen: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._listen = listen
        self._closed = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self.port = 0

    @classmethod
    def to(cls, kubeconfig: Path) -> Self:
        """To the API server of a kubeconfig."""
        server = urlsplit(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
        return cls(server.hostname or "", server.port or 443)

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, self._listen, 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close_all()
        self._listener.close()

    def kubeconfig(self, original: Path, folder: Path) -> Path:
        """A kubeconfig that goes through here; TLS still speaks of the real server."""
        config = yaml.safe_load(original.read_text())
        cluster = config["clusters"][0]["cluster"]
        cluster["server"] = f"https://127.0.0.1:{self.port}"
        cluster["tls-server-name"] = self._target[0]
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def close_all(self) -> None:
        """Cut all connections, and refuse new ones."""
        self._closed = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def renew(self) -> None:
        """End all connections, which must be idle, and return when the clients have noticed: they make new ones."""
        ending = dict(self._connections)
        for client in ending.values():
            with suppress(OSError):  # it has ended already
                client.shutdown(socket.SHUT_WR)
        await asyncio.gather(*ending, return_exceptions=True)

    def open(self) -> None:
        self._closed = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        upstream_reader, upstream = await asyncio.open_connection(*self._target)
        self._writers |= {writer, upstream}
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer.get_extra_info("socket")
        try:
            await asyncio.gather(_pump(reader, upstream), _pump(upstream_reader, writer))
        finally:
            del self._connections[task]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
