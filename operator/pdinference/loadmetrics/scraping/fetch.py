"""One request for the metrics of a pod, bounded in time, bytes and CPU. All that reads pods goes through here."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final

from pdinference.loadmetrics.scraping.http_answer import HttpAnswer
from pdinference.loadmetrics.scraping.unreadable import Reason, UnreadableError

_PIECE: Final = 16384
"""Bytes that are read, and worked on, at a time."""
_KERNEL_BUFFER: Final = 65536
"""The kernel's buffer of a connection counts towards the container's memory, and would grow to some MiB."""
_CONNECTIONS: Final = 32
_REST: Final = 3.0
"""After a piece of a namespace was worked on, the namespace rests this many times as long. So it gets a quarter of one
core at most. 300 pods of vLLM need a tenth of that."""
_SHORTEST_REST_S: Final = 0.001


class Share:
    """What one namespace may take of this process: connections at a time, and CPU.

    Attributes:
        connections: Hold one during a request.
    """

    def __init__(self) -> None:
        self.connections = asyncio.Semaphore(_CONNECTIONS)
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Work on one piece; the next one of this namespace waits until it has rested."""
        async with self._turn:
            began = time.thread_time()
            try:
                yield
            finally:
                await asyncio.sleep(max(_SHORTEST_REST_S, _REST * (time.thread_time() - began)))


async def fetch(
    address: str, port: int, take: Callable[[bytes], None], *, prefix: bytes, share: Share, seconds: float
) -> None:
    """Read /metrics, and pass on each line that begins with the prefix.

    Redirects are not followed, nothing is decompressed, and lines of more than 4 KiB are left out.

    Args:
        address: IP address of the pod.
        port: Where it listens.
        take: Gets the lines. What it raises ends the request.
        prefix: What the lines begin with.
        share: Of the pod's namespace.
        seconds: Within which the whole answer must be there.

    Raises:
        UnreadableError: There is no answer that could be used.
    """
    try:
        async with asyncio.timeout(seconds):
            with _connection(address) as connection:
                await _exchange(connection, (address, port), HttpAnswer(prefix), take, share)
    except ConnectionRefusedError as error:
        raise UnreadableError(Reason.REFUSED, "no process listens on the port") from error
    except TimeoutError as error:
        raise UnreadableError(Reason.TIMEOUT, f"the answer was not complete after {seconds:g} s") from error
    except OSError as error:
        raise UnreadableError(Reason.UNREACHABLE, str(error)) from error


def _connection(address: str) -> socket.socket:
    try:
        family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    except ValueError:
        raise UnreadableError(Reason.UNREACHABLE, "the pod's address is no IP address") from None
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BUFFER)
    return connection


async def _exchange(
    connection: socket.socket,
    place: tuple[str, int],
    answer: HttpAnswer,
    take: Callable[[bytes], None],
    share: Share,
) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, place)
    await loop.sock_sendall(connection, _request(*place))
    while not answer.complete:
        data = await loop.sock_recv(connection, _PIECE)
        async with share.turn():
            for line in answer.feed(data) if data else answer.end():
                take(line)


def _request(address: str, port: int) -> bytes:
    host = f"[{address}]" if ":" in address else address
    lines = (
        "GET /metrics HTTP/1.1",
        f"Host: {host}:{port}",
        "User-Agent: pdinference-operator",
        "Accept: */*",
        "Accept-Encoding: identity",
        "Connection: close",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()
