"""Hostile pods: small servers that send arbitrary bytes, for tests and the benchmark."""

import asyncio
import gzip
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from pdinference.loadmetrics.scraping.exposition import _MOST_LINES
from pdinference.loadmetrics.scraping.http_answer import LONGEST_BODY

Answering = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes an answer, once a request has come."""

_RECORDED: Final = (Path(__file__).parent / "recorded" / "decode-later.txt").read_bytes()
_LINE: Final = b'vllm:num_requests_waiting{engine="0",model_name="m"} 6.0\n'
_BUCKET: Final = b"vllm:inter_token_latency_seconds_bucket"
_FOREVER: Final = 10**9


def answer(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole HTTP answer."""
    lines = (b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers)
    return b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def saying(raw: bytes) -> Answering:
    """Writes these bytes and closes the connection."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return write


def metrics(*lines: bytes) -> Answering:
    """The metrics that vLLM wrote once, and these lines after them."""
    return saying(answer(_RECORDED + b"\n".join(lines) + b"\n"))


def repeating(head: bytes, part: bytes, *, seconds: float = 0, times: int = _FOREVER) -> Answering:
    """Writes the same again and again, as fast as it is read, or every so many seconds."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _ in range(times):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(seconds)

    return write


async def _tarpit(_writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(_FOREVER)


async def _reset(writer: asyncio.StreamWriter) -> None:
    writer.write(answer(_RECORDED)[:1000])
    await writer.drain()
    linger = writer.get_extra_info("socket")
    linger.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER: close with a reset


def dense(size: int = LONGEST_BODY) -> bytes:
    """As many labels in as many wanted lines as the limits allow: what takes longest to read."""
    line = b"vllm:num_requests_waiting{" + b",".join([b'a=""'] * 127) + b"} 1\n"
    return line * min(size // len(line), _MOST_LINES)


def at_limits() -> list[bytes]:
    """As many buckets as are kept, besides those that vLLM has."""
    names = (b"vllm:inter_token_latency_seconds", b"vllm:time_to_first_token_seconds")
    return [b'%s_bucket{le="%d.25"} %d.5' % (name, at, at) for name in names for at in range(41)]


_CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_OPEN: Final = b"HTTP/1.1 200 OK\r\n\r\n"

READABLE: Final[dict[str, Answering]] = {
    "missing le": metrics(_BUCKET + b'{engine="0"} 1'),
    "odd le": metrics(_BUCKET + b'{le="abc"} 1', _BUCKET + b'{le="NaN"} 1', _BUCKET + b'{le="1_0"} 1'),
    "thousands of buckets": metrics(*(_BUCKET + b'{le="%d.5"} 1' % number for number in range(3000))),
    "NaN": metrics(*(_LINE.replace(b"6.0", value).strip() for value in (b"NaN", b"+Inf", b"-Inf", b"Inf"))),
    "huge numbers": metrics(*(_LINE.replace(b"6.0", value).strip() for value in (b"1e308", b"-5", b"9" * 3000))),
    "5,000 digits": metrics(b'vllm:cache_config_info{block_size="128",num_gpu_blocks="%s"} 1' % (b"9" * 3900)),
    "duplicates": metrics(*[_LINE.strip()] * 1000),
    "invalid UTF-8": metrics(b'vllm:num_requests_waiting{model_name="\xff\xfe\x80"} 1'),
    "NUL": metrics(b'vllm:num_requests_waiting{model_name="\x00"} 1'),
    "line of 2 MiB": saying(_OPEN + b"#" * 500_000 + b"\n" + _RECORDED),
    "no metrics": saying(answer(b"")),
    "a million empty lines": saying(answer(b"\n" * (2**20 - 1))),
}
"""Answers that can be read, whatever they say."""

UNREADABLE: Final[dict[str, tuple[str, Answering]]] = {
    "labels of 6 MiB": ("too-long", saying(answer(b"vllm:num_requests_waiting{" + b'a="1",' * 1_050_000 + b"} 1\n"))),
    "body of 8 MiB": ("too-long", saying(answer(_LINE * 150_000))),
    "body of 8 MiB without length": ("too-long", saying(_OPEN + b"# x\n" * 2 * 2**20)),
    "too many lines": ("too-long", metrics(*[_LINE.strip()] * 5000)),
    "endless chunks": ("too-long", repeating(_CHUNKED, b"4000\r\n" + b"# x\n" * 4096 + b"\r\n")),
    "chunks of a byte": ("too-long", repeating(_CHUNKED, b"1\r\n#\r\n" * 2000)),
    "endless chunk head": ("too-long", repeating(_CHUNKED, b"1" * 1000)),
    "chunk of 4 GiB": ("too-long", saying(_CHUNKED + b"ffffffff\r\n")),
    "endless headers": ("too-long", repeating(b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 1000 + b"\r\n")),
    "header bomb": ("too-long", saying(answer(b"", *[b"X-%d: x" % number for number in range(10_000)]))),
    "gzip bomb": ("encoding", saying(answer(gzip.compress(bytes(2**26)), b"Content-Encoding: gzip"))),
    "unknown transfer encoding": ("encoding", saying(answer(b"", b"Transfer-Encoding: gzip, chunked"))),
    "flood of 100 Continue": ("status", repeating(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)),
    "error": ("status", saying(answer(b"", status=b"500 Internal Server Error"))),
    "redirect": ("status", saying(answer(b"", b"Location: http://127.0.0.1/", status=b"302 Found"))),
    "no HTTP": ("malformed", saying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")),
    "no hexadecimal chunk": ("malformed", saying(_CHUNKED + b"zz\r\n")),
    "empty chunk heads": ("malformed", repeating(_CHUNKED + b"1\r\n#", b"\r\n" * 1000)),
    "odd length": ("malformed", saying(b"HTTP/1.1 200 OK\r\nContent-Length: \xd9\xa3\r\n\r\n")),
    "unterminated label": ("malformed", metrics(b'vllm:num_requests_waiting{engine="0 1')),
    "too many labels": ("malformed", metrics(b"vllm:num_requests_waiting{" + b'a="",' * 200 + b"} 1")),
    "unicode digits": ("malformed", metrics("vllm:num_requests_waiting ٣".encode())),
    "half a number": ("malformed", metrics(b"vllm:num_requests_waiting 0.e")),
    "half a time": ("malformed", metrics(b"vllm:num_requests_waiting 1 - ")),
    "underscores in numbers": ("malformed", metrics(b"vllm:num_requests_waiting 1_000")),
    "reset": ("unreachable", _reset),
    "cut short": ("unreachable", saying(answer(_RECORDED)[:5000])),
    "tarpit": ("timeout", _tarpit),
    "byte by byte": ("timeout", repeating(_OPEN, b"#", seconds=0.05)),
}
"""Answers that cannot be read, and the reason."""


@asynccontextmanager
async def pods(answering: Answering, *addresses: str, port: int = 0) -> AsyncIterator[int]:
    """Servers that answer so, at these addresses; their port comes back."""
    under_way: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            under_way.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            await answering(writer)
        writer.close()

    servers = []
    try:
        for address in addresses or ("127.0.0.1",):
            servers.append(await asyncio.start_server(serve, address, port, backlog=1024))
            port = servers[-1].sockets[0].getsockname()[1]
        yield port
    finally:
        for server in servers:
            server.close()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
