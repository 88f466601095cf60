"""A cable between the operator and the API server that a test can pull out."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import yaml


class Proxy:
    """Forwards TCP connections while it is open."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._closed = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @classmethod
    def to(cls, kubeconfig: Path) -> Self:
        """To the API server of a kubeconfig."""
        server = urlsplit(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
        return cls(server.hostname or "", server.port or 443)

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
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

    def open(self) -> None:
        self._closed = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        upstream_reader, upstream = await asyncio.open_connection(*self._target)
        self._writers |= {writer, upstream}
        await asyncio.gather(_pump(reader, upstream), _pump(upstream_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
