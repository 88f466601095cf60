"""Hostile lines of batch inputs: invalid lines, and unusual valid requests."""

import json
from typing import Any

from pdinference.runner.lines import LONGEST_LINE

URL = "/v1/chat/completions"


def request(**changed: Any) -> bytes:
    """A request in which members are changed; None leaves one out."""
    messages = [{"role": "user", "content": "prompt 1"}]
    whole = {"custom_id": "x", "method": "POST", "url": URL, "body": {"messages": messages}, **changed}
    return json.dumps({name: value for name, value in whole.items() if value is not None}).encode()


def with_raw(member: str, raw: bytes) -> bytes:
    """A request with a member of the body, or of the line for `custom_id`, in these very bytes."""
    if member == "custom_id":
        return b'{"custom_id":%s,"url":"%s","body":{"messages":[]}}' % (raw, URL.encode())
    return b'{"custom_id":"x","url":"%s","body":{"messages":[{"content":"prompt 1"}],"%s":%s}}' % (
        URL.encode(),
        member.encode(),
        raw,
    )


WRONG: dict[str, bytes] = {
    "no JSON": b"hello",
    "half a line": request()[:-7],
    "two values": request() + request(),
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "text": b'"text"',
    "an empty object": b"{}",
    "trailing comma": request()[:-1] + b",}",
    "a comment": request()[:-1] + b"/* */}",
    "single quotes": request().replace(b'"', b"'"),
    "a byte order mark": b"\xef\xbb\xbf" + request(),
    "UTF-16": request().decode().encode("utf-16"),
    "UTF-16 without mark": request().decode().encode("utf-16-le"),
    "UTF-32": request().decode().encode("utf-32"),
    "Latin-1": request(body={"messages": "PLACE"}).replace(b"PLACE", b"\xe9"),
    "overlong UTF-8": request(body={"messages": "PLACE"}).replace(b"PLACE", b"\xc0\xaf"),
    "surrogate in UTF-8": request(body={"messages": "PLACE"}).replace(b"PLACE", b"\xed\xa0\x80"),
    "cut UTF-8": b'{"custom_id": "\xf0\x9f',
    "NUL": b"\0",
    "NUL within": request().replace(b"prompt", b"pro\0mpt"),
    "many NULs": b"\0" * 100_000,
    "a carriage return within text": request().replace(b"prompt", b"pro\rmpt"),
    "a control character within text": request().replace(b"prompt", b"pro\x1bmpt"),
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "NaN": with_raw("temperature", b"NaN"),
    "Infinity": with_raw("temperature", b"Infinity"),
    "-Infinity": with_raw("temperature", b"-Infinity"),
    "hexadecimal": with_raw("n", b"0x10"),
    "leading zero": with_raw("n", b"007"),
    "5,000 digits": with_raw("n", b"9" * 5000),
    "1,000,000 digits": with_raw("n", b"9" * 1_000_000),
    "5,000 digits of a fraction": with_raw("n", b"0." + b"9" * 5000),
    "half a pair": with_raw("user", b'"\\ud83d"'),
    "the other half": with_raw("user", b'"\\ude00 text text"'),
    "half a pair in a name": b'{"custom_id":"x","\\ud800\\u0041":1,"url":"%s","body":{}}' % URL.encode(),
    "half a pair in custom_id": with_raw("custom_id", b'"\\ud800 and more"'),
    "a wrong escape": with_raw("user", b'"\\x41"'),
    "a cut escape": with_raw("user", b'"\\u12"'),
    "65 levels": with_raw("x", b"[" * 63 + b"]" * 63),
    "100,000 levels": b"[" * 100_000,
    "100,000 levels of objects": b'{"a":' * 100_000,
    "levels that never end in the body": with_raw("x", b"[" * 5000),
    "levels after a false end of text": with_raw("x", b'"\\\\",' + b'"y":' + b"[" * 5000),
    "levels over the edge of a piece": b'{"custom_id":"' + b"x" * (2**16 - 15) + b'\\\\","b":' + b"[" * 70,
    "too many members": with_raw("x", b"{" + b'"":0,' * 200_000 + b'"":0}'),
    "too many values": with_raw("x", b"[" + b"[]," * 2_100_000 + b"0]"),
    "too many members of the body": b'{"custom_id":"x","url":"%s","body":{%s"a":0}}'
    % (URL.encode(), b'"b":0,' * 100_001),
    "too long": request(body={"messages": "x" * LONGEST_LINE}),
    "no custom_id": request(custom_id=None),
    "an empty custom_id": request(custom_id=""),
    "a long custom_id": request(custom_id="x" * 513),
    "a number for custom_id": request(custom_id=7),
    "true for custom_id": request(custom_id=True),
    "a list for custom_id": request(custom_id=["x"]),
    "an object for custom_id": request(custom_id={"x": 1}),
    "null for custom_id": with_raw("custom_id", b"null"),
    "GET": request(method="GET"),
    "post": request(method="post"),
    "a request smuggled into the method": request(method="POST / HTTP/1.1\r\nHost: x\r\n\r\nPOST"),
    "a method with a line": request(method="POST\n"),
    "a list of methods": request(method=["POST"]),
    "null for the method": b'{"method":null,' + request(method=None)[1:],
    "no url": request(url=None),
    "another path": request(url="/metrics"),
    "another host": request(url="http://169.254.169.254/v1/chat/completions"),
    "another host without scheme": request(url="//elsewhere/v1/chat/completions"),
    "another port": request(url="@elsewhere:1/v1/chat/completions"),
    "dots": request(url="/v1/chat/completions/../../metrics"),
    "a query": request(url="/v1/completions?x=1"),
    "a fragment": request(url="/v1/completions#x"),
    "a line in the url": request(url="/v1/completions\r\nX: y"),
    "a blank in the url": request(url="/v1/completions "),
    "NUL in the url": request(url="/v1/completions\0"),
    "a percent": request(url="/v1%2fcompletions"),
    "a long url": request(url="/v1/completions" * 10_000),
    "a list of urls": request(url=[URL]),
    "no body": request(body=None),
    "text for the body": request(body="text"),
    "a list for the body": request(body=[{}]),
    "null for the body": b'{"body":null,' + request(body=None)[1:],
    "a number for the body": request(body=1),
    "a stream": request(body={"stream": True}),
    "a stream as text": request(body={"stream": "yes"}),
    "a stream as a number": request(body={"stream": 1}),
    "a stream after none": with_raw("stream", b'false,"stream":true'),
}
"""Invalid lines by their problem."""

FINE: dict[str, bytes] = {
    "blanks around": b" \t" + request() + b" \t\r",
    "unknown members": request(metadata={"team": "a"}),
    "no method": request(method=None),
    "an emoji as a pair": with_raw("user", b'"\\ud83d\\ude00"'),
    "an emoji": with_raw("user", '"\U0001f600"'.encode()),
    "a NUL escaped": with_raw("user", b'"\\u0000"'),
    "brackets in text": with_raw("user", b'"' + b"[{" * 5000 + b'"'),
    "quotes and brackets in text": with_raw("user", b'"' + b'\\"[' * 50_000 + b'"'),
    "backslashes and brackets in text": with_raw("user", b'"' + b"\\\\[" * 50_000 + b'"'),
    "an escape over the edge of a piece": with_raw("user", b'"' + b"x" * 65_430 + b'\\"[[' * 40 + b'"'),
    "64 levels": with_raw("x", b"[" * 62 + b"]" * 62),
    "a thousand digits": with_raw("seed", b"9" * 1000),
    "a huge number": with_raw("temperature", b"1e400"),
    "a million token ids": with_raw("prompt", b"[" + b"128000," * 999_999 + b"1]"),
    "no stream": request(body={"messages": [{"content": "prompt 1"}], "stream": False}),
    "a null stream": with_raw("stream", b"null"),
    "a member twice": with_raw("seed", b'1,"seed":2'),
    "a model twice": with_raw("model", b'"a","model":"b"'),
    "a model that is a list": with_raw("model", b"[1]"),
    "members of Python": with_raw("__proto__", b'{"__class__":1}'),
    "a custom_id of control characters": with_raw("custom_id", b'"\\u0000\\n\\u001b[31m\\u202e"'),
    "a custom_id of 512 emoji": with_raw("custom_id", b'"' + b"\\ud83d\\ude00" * 512 + b'"'),
}
"""Unusual valid lines by their peculiarity."""
