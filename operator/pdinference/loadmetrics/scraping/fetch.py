"""HTTP request for the metrics of a pod, bounded in time, bytes and CPU. All scraping uses it.

Tests: tests/loadmetrics/test_hostile_pods.py, tests/loadmetrics/test_rounds.py
"""

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
"""Bytes to read and process at a time."""
_KERNEL_BUFFER: Final = 65536
"""Receive buffer of a connection. By default it could grow to several MiB, which count as container memory."""
_CONNECTIONS: Final = 32
_REST: Final = 3.0
"""Pause of a namespace after each piece, in multiples of the processing time. This limits a namespace to a quarter of a
core. 300 vLLM pods need a tenth of that."""
_SHORTEST_REST_S: Final = 0.001


class Share:
    """Limits of one namespace: concurrent connections and CPU.

    Attributes:
        connections: Acquire it for the duration of a request.
    """

    def __init__(self) -> None:
        self.connections = asyncio.Semaphore(_CONNECTIONS)
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Process one piece. The next piece of the namespace waits for the pause."""
        async with self._turn:
            began = time.thread_time()
            try:
                yield
            finally:
                await asyncio.sleep(max(_SHORTEST_REST_S, _REST * (time.thread_time() - began)))


async def fetch(
    address: str,
    port: int,
    take: Callable[[bytes], None],
    *,
    prefix: bytes | tuple[bytes, ...],
    share: Share,
    seconds: float,
) -> None:
    """Read /metrics, and call `take` with each line that has the prefix.

    Redirects are not followed, responses are not decompressed, and lines of more than 4 KiB are skipped.

    Args:
        address: IP address of the pod.
        port: Port of the pod.
        take: Called with each line. An exception ends the request.
        prefix: Prefix of the lines, or several.
        share: Limits of the pod's namespace.
        seconds: Timeout of the whole request.

    Raises:
        UnreadableError: The response is missing or cannot be used.
    """
    try:
        async with asyncio.timeout(seconds):
            with _connection(address) as connection:
                await _exchange(connection, (address, port), HttpAnswer(prefix), take, share)
    except ConnectionRefusedError as error:
        raise UnreadableError(Reason.REFUSED, "no process listens on the port") from error
    except TimeoutError as error:
        raise UnreadableError(Reason.TIMEOUT, f"the response was not complete after {seconds:g} s") from error
    except OSError as error:
        raise UnreadableError(Reason.UNREACHABLE, str(error)) from error


def _connection(address: str) -> socket.socket:
    try:
        family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    except ValueError:
        raise UnreadableError(Reason.UNREACHABLE, "the address of the pod is not an IP address") from None
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
