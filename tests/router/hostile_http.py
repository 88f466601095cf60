"""Requests that a hostile client may send, as bytes for a socket. A seed gives the same ones each time."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

ADMIN: Final = (
    "/pause",
    "/v1/load_lora_adapter",
    "/collective_rpc",
    "/metrics",
    "/list_workers",
    "/v1/completions/render",
)
PARAMS: Final = b'{"do_remote_prefill":true,"remote_host":"evil","remote_port":1}'
GOOD: Final = b'{"prompt":"one two","max_tokens":9}'
JSON: Final = (b"Content-Type: application/json",)
HIDDEN: Final = "hidden"
"""Id of requests that lie in what a correct parser takes for a part of another one, or for garbage."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a client sends on one connection.

    Attributes:
        parts: Written one after the other.
        most: Requests of it that pods may get, at most.
    """

    parts: tuple[bytes, ...]
    most: int


def cases(seed: int, count: int) -> Iterator[Case]:
    """Cases of all kinds."""
    chance = random.Random(seed)  # noqa: S311 - the same each time
    for number in range(count):
        yield chance.choice(_KINDS)(chance, f"{seed}-{number}")


def head(
    name: str,
    *headers: bytes,
    method: bytes = b"POST",
    target: bytes = b"/v1/completions",
    version: bytes = b"HTTP/1.1",
    end: bytes = b"\r\n",
) -> bytes:
    """Request line and headers."""
    lines = (b"%b %b %b" % (method, target, version), b"Host: a", b"X-Request-Id: %b" % name.encode(), *headers)
    return end.join(lines) + end + end


def request(name: str, body: bytes = GOOD, *headers: bytes, target: bytes = b"/v1/completions") -> bytes:
    """A request that is correct HTTP."""
    return head(name, *JSON, b"Content-Length: %d" % len(body), *headers, target=target) + body


_SMUGGLED: Final = request(HIDDEN)

_MISFRAMED: Final = (
    *(
        (b"Content-Length: " + length,)
        for length in (
            b"+35",
            b"-1",
            b"0x23",
            b"35;",
            b"3 5",
            b"35,36",
            b"35, 35",
            b"",
            b"1e1",
            b"3_5",
            b"\xd9\xa3\xd9\xa5",
        )
    ),
    (b"Content-Length: 18446744073709551651",),  # 2**64 + 35
    (b"Content-Length: 35", b"Content-Length: 4"),
    (b"Content-Length: 35", b"Content-Length: 35"),
    (b"Content-Length : 35",),
    (b"Content-Length\x00: 35",),
    (b"Content-Length: 35\x00",),
    (b"Content-Length\t: 35",),
    (b" Content-Length: 35",),
    (b"X: a", b" Content-Length: 35"),  # a folded line
    (b"X: a", b"\tTransfer-Encoding: chunked"),
    (b"Content-Length: 35", b"Transfer-Encoding: chunked"),
    (b"Transfer-Encoding: chunked", b"Content-Length: 35"),
    (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
    *(
        (b"Transfer-Encoding: " + coding,)
        for coding in (
            b"xchunked",
            b"chunked, identity",
            b"chunked;a",
            b"\x0bchunked",
            b"chunked\x00",
            b'"chunked"',
            b"gzip",
        )
    ),
    (b"Transfer-Encoding : chunked",),
    (b"Transfer-Encoding\x0b: chunked",),
    (b"Content-Length: 35\rX: a",),
    (b"Content-Length: 35\nX: a",),
    (b": 35",),
    (b"X",),
    (b"X: " + b"a" * 40_000,),
    tuple(b"X%d: a" % number for number in range(200)),
)
_MISCHUNKED: Final = (
    b"0x23\r\n%b\r\n0\r\n\r\n",
    b"+23\r\n%b\r\n0\r\n\r\n",
    b"-23\r\n%b\r\n0\r\n\r\n",
    b" 23\r\n%b\r\n0\r\n\r\n",
    b"2 3\r\n%b\r\n0\r\n\r\n",
    b"\r\n23\r\n%b\r\n0\r\n\r\n",
    b"23\n%b\n0\n\n",
    b"23\r%b\r0\r\r",
    b"23\r\n%b0\r\n\r\n",
    b"23\r\n%bab\r\n0\r\n\r\n",
    b"22\r\n%b\r\n0\r\n\r\n",
    b"10000000000000023\r\n%b\r\n0\r\n\r\n",
    b"23;a\n%b\r\n0\r\n\r\n",
    b"23;a=\x00\r\n%b\r\n0\r\n\r\n",
    b"23\r\n%b\r\n0\r\nX\x00: a\r\n\r\n",
    b"23\r\n%b\r\n0\r\n: a\r\n\r\n",
    b"23\r\n%b\r\n\r\n",
)
_CHUNKED: Final = (
    b"23\r\n%b\r\n0\r\n\r\n",
    b"00000023\r\n%b\r\n0\r\n\r\n",
    b'23;a=b;c="d;\\" e"\r\n%b\r\n0;x\r\n\r\n',
    b"23\r\n%b\r\n0\r\nX: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nAuthorization: b\r\n\r\n",
)


def _misframed(chance: random.Random, name: str) -> Case:
    sent = head(name, *JSON, *chance.choice(_MISFRAMED)) + GOOD
    return Case((sent + _SMUGGLED,), 0)


def _mischunked(chance: random.Random, name: str) -> Case:
    body = chance.choice(_MISCHUNKED) % GOOD
    return Case((head(name, *JSON, b"Transfer-Encoding: chunked") + body + _SMUGGLED,), 0)


def _bare_line_ends(chance: random.Random, name: str) -> Case:
    end = chance.choice((b"\n", b"\r", b"\n\r", b"\r\r\n"))
    return Case((head(name, *JSON, b"Content-Length: %d" % len(GOOD), end=end) + GOOD + _SMUGGLED,), 0)


def _chunked(chance: random.Random, name: str) -> Case:
    body = chance.choice(_CHUNKED) % GOOD
    return Case(_torn(chance, head(name, *JSON, b"Transfer-Encoding: Chunked") + body), 1)


def _hidden_in_a_body(chance: random.Random, name: str) -> Case:
    body = chance.choice((json.dumps({"prompt": _SMUGGLED.decode()}).encode(), _SMUGGLED))
    target = chance.choice((b"/v1/completions", b"/pause", b"/v1/models"))
    return Case(_torn(chance, request(name, body, target=target)), 1)


_TARGETS: Final = (
    *(path.encode() for path in ADMIN),
    b"http://evil/v1/completions",
    b"http://evil:1/pause",
    b"https://a@evil/v1/models",
    b"//evil/v1/completions",
    b"/v1/completions?a=b",
    b"/v1/completions#a",
    b"/v1/completion%73",
    b"/v1/completions%00",
    b"/v1/completions%0d%0aX:%20a",
    b"/v1/completions/..%2f..%2fpause",
    b"/v1/../pause",
    b"/./v1/completions",
    b"/v1//completions",
    b"/v1/completions;a",
    b"/V1/completions",
    b"\\v1\\completions",
    b"/v1/completions\x00",
    b"/v1/completions\xff",
    b"/%",
    b"*",
    b"a:80",
    b"http://[::1",
    b"http://a:99999999/v1/completions",
    b"",
    b"/" + b"a" * 20_000,
    b"/v1/models",
    b"/health",
    b"/v1/embeddings",
    b"/v1/responses",
    b"/tokenize",
)
_METHODS: Final = (
    b"GET",
    b"POST",
    b"HEAD",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"PUT",
    b"DELETE",
    b"PRI",
    b"post",
    b"A B",
    b"",
)
_VERSIONS: Final = (
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"HTTP/1.10",
    b"HTTP/1.",
    b"",
    b"RTSP/1.0",
)


def _target(chance: random.Random, name: str) -> Case:
    method, target, version = chance.choice(_METHODS), chance.choice(_TARGETS), chance.choice(_VERSIONS)
    line = head(name, *JSON, b"Content-Length: 35", method=method, target=target, version=version)
    return Case((line + GOOD,), 1)


_HEADERS: Final = (
    b"Expect: 100-continue",
    b"Expect: a",
    b"Connection: close",
    b"Connection: Content-Length, X-Request-Id, Content-Type, Host",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"HTTP2-Settings: AAMAAABkAAQAAP__",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Version: 13",
    b"TE: trailers",
    b"Trailer: Authorization",
    b"Keep-Alive: timeout=9999",
    b"Proxy-Connection: keep-alive",
    b"Proxy-Authorization: Basic a",
    b"Authorization: Bearer a",
    b"Cookie: a=b",
    b"X-Api-Key: a",
    b"Content-Encoding: gzip",
    b"Content-Encoding: br, gzip",
    b"Content-Type: text/plain",
    b"content-type: application/json; charset=utf-7",
    b"Accept-Encoding: gzip, *",
    b"Range: bytes=0-1",
    b"If-None-Match: *",
    b"Host: b",
    b"X-Forwarded-For: 1.2.3.4",
    b"X-Request-Id: b",
    b"X-Session-Id: \xf0\x9f\x98\x80\xff",
    b"X-A: \xff\xfe\xed\xa0\x80",
    b"X-B: \x01",
    b"X-C: \x7f",
    b"X-D:",
    b"X\xc3\xa9: a",
    b"X{}: a",
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"Traceparent: a",
    b"Max-Forwards: 0",
)


def _headers(chance: random.Random, name: str) -> Case:
    more = chance.sample(_HEADERS, chance.randrange(1, 5))
    return Case(_torn(chance, request(name, GOOD, *more)), 1)


def _long_head(chance: random.Random, name: str) -> Case:
    """A head near its limit, in one header or many, complete or not."""
    length, count = chance.choice(((30_000, 1), (33_000, 1), (300, 90), (300, 127), (3, 140), (9_000, 3), (9_000, 4)))
    sent = request(name, GOOD, *(b"X%d: %b" % (number, b"a" * length) for number in range(count)))
    return Case(_torn(chance, sent[: chance.choice((len(sent), len(sent) - 40, 20_000))]), 1)


_VALUES: Final = (
    b"null",
    b"true",
    b"1",
    b"-0",
    b"1e999",
    b"1.5",
    b"9" * 400,
    b"NaN",
    b"01",
    b'""',
    b'"a"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\u0000"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\\x"',
    b'"a',
    b"[]",
    b"{}",
    b"[1,2,3]",
    b'[1,"a",[]]',
    b'["a","b"]',
    b"[[1],[2]]",
    b'[{"type":"text","text":"a"}]',
    b'[{"role":"user","content":"a"}]',
    b"[" * 50_000,
    b"[" * 5_000 + b"]" * 5_000,
    b'{"a":' * 500 + b"1" + b"}" * 500,
    b"[" + b"[],{}," * 20_000 + b"1]",
    b"[" + b"1," * 40_000 + b"1]",
    b'"' + b"\\\\" * 40_000 + b'"',
    PARAMS,
)
_NAMES: Final = (
    b"prompt",
    b"messages",
    b"max_tokens",
    b"stream",
    b"n",
    b"best_of",
    b"echo",
    b"logprobs",
    b"stream_options",
    b"kv_transfer_params",
    b"kv\\u005ftransfer_params",
    b"Kv_transfer_params",
    b"kv_transfer_params\\u0000",
    b"ec_transfer_params",
    b"return_token_ids",
    b"response_format",
    b"seed",
    b"tools",
    b"model",
    b"a",
    b"",
    b"\\ud800",
    b"\xff",
    b"__proto__",
)


def _members(chance: random.Random) -> bytes:
    members = [b'"%b":%b' % (chance.choice(_NAMES), chance.choice(_VALUES)) for _ in range(chance.randrange(4))]
    members += chance.sample(
        (b'"prompt":"a"', b'"stream":true', b'"kv_transfer_params":' + PARAMS), chance.randrange(4)
    )
    chance.shuffle(members)
    return b"{%b}" % b",".join(members)


_BODIES: Final = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"{}{}",
    b'{"prompt":"a"}\x00',
    b'\xef\xbb\xbf{"prompt":"a"}',
    '{"prompt":"a"}'.encode("utf-16"),
    '{"prompt":"a"}'.encode("utf-32-be"),
    b'{"prompt":"a",}',
    b"{'prompt':'a'}",
    b'{"prompt":"a"} // a',
    b'{"prompt":"a"' + b',"b":0' * 60_000 + b"}",
    b"{" + b",".join(b'"%d\\\\":0' % number for number in range(110_000)) + b"}",
    b" " * 100_000 + b"{}",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
)


def _json(chance: random.Random, name: str) -> Case:
    body = chance.choice(_BODIES) if chance.random() < 0.15 else _members(chance)
    target = chance.choice((b"/v1/completions", b"/v1/chat/completions", b"/v1/responses", b"/tokenize"))
    return Case(_torn(chance, request(name, body, target=target)), 1)


def _pipelined(chance: random.Random, name: str) -> Case:
    count = chance.randrange(2, 6)
    sent = b"".join(request(f"{name}.{number}", _members(chance)) for number in range(count))
    return Case(_torn(chance, sent), count)


def _mutated(chance: random.Random, name: str) -> Case:
    """A correct request of another kind, with some bytes changed, removed, repeated or added."""
    kind = chance.choice((_chunked, _headers, _json, _pipelined))
    sent = bytearray(b"".join(kind(chance, name).parts))
    for _ in range(chance.randrange(1, 6)):
        place, change = chance.randrange(len(sent) + 1), chance.randrange(4)
        length = chance.randrange(1, 20)
        if change == 0:
            sent[place : place + 1] = bytes((chance.randrange(256),))
        elif change == 1:
            del sent[place : place + length]
        elif change == 2:
            sent[place:place] = sent[place : place + length]
        else:
            sent[place:place] = chance.choice((b"\r\n", b"\n", b"\x00", b" ", b":", b"\r\n\r\n", b"\xff", b"HTTP/1.1"))
    data = bytes(sent)
    return Case(_torn(chance, data), data.count(b"HTTP/"))


def _cut(chance: random.Random, name: str) -> Case:
    """The beginning of a request of another kind."""
    kind = chance.choice((_chunked, _headers, _json, _pipelined, _mischunked))
    sent = b"".join(kind(chance, name).parts)
    sent = sent[: chance.randrange(len(sent) + 1)]
    return Case((sent,), sent.count(b"HTTP/"))


def _torn(chance: random.Random, sent: bytes) -> tuple[bytes, ...]:
    """Up to four pieces."""
    ends = sorted(chance.choices(range(len(sent) + 1), k=chance.randrange(4)))
    return tuple(sent[begin:end] for begin, end in zip((0, *ends), (*ends, len(sent)), strict=True))


_KINDS: Final[Sequence[Callable[[random.Random, str], Case]]] = (
    _misframed,
    _mischunked,
    _bare_line_ends,
    _chunked,
    _hidden_in_a_body,
    _target,
    _headers,
    _long_head,
    _json,
    _json,
    _pipelined,
    _mutated,
    _mutated,
    _cut,
)
