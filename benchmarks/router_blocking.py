"""How long hostile JSON blocks the router's event loop: `uv run --no-sync python -m benchmarks.router_blocking`.

Each shape of 16 MiB goes through the functions that the router calls for it. Counted is the CPU time of the longest
stretch in which the event loop ran nothing else, the least of several rounds: the load of the machine matters little.

- body: of a client, to each endpoint, until P and D have theirs;
- answer: of P, whose `kv_transfer_params` are read;
- metrics: lines of a pod's /metrics.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping

from multidict import CIMultiDict, CIMultiDictProxy

from pdinference.router.calls import MalformedError, read_call
from pdinference.router.exchange import PodFailure, Whole, check_not_aborted, transfer_params
from pdinference.router.timing import timed
from pdinference.router.untrusted import NotJsonError, check_text

SIZE = 16 * 2**20
_Values = Mapping[str, Callable[[], bytes]]
_Places = Mapping[str, tuple[bytes, bytes]]
_Work = Callable[[bytes], Awaitable[None]]


def _filled(start: bytes, item: bytes, end: bytes, between: bytes = b",") -> bytes:
    """As many items as fit."""
    count = (SIZE - len(start) - len(end)) // (len(item) + len(between))
    return start + between.join([item] * count) + end


_VALUES: _Values = {
    "one text": lambda: _filled(b'"', b"x", b'"', b""),
    "one text, two bytes a character": lambda: _filled(b'"', "ü".encode(), b'"', b""),
    "escapes": lambda: _filled(b'"', b"\\n", b'"', b""),
    "escaped characters": lambda: _filled(b'"', b"\\u00fc", b'"', b""),
    "escaped pairs": lambda: _filled(b'"', b"\\ud83d\\ude00", b'"', b""),
    "backslashes": lambda: _filled(b'"', b"\\\\", b'"', b""),
    "quotes": lambda: _filled(b'"', b'\\"', b'"', b""),
    "empty lists": lambda: _filled(b"[", b"[]", b"]"),
    "empty objects": lambda: _filled(b"[", b"{}", b"]"),
    "digits": lambda: _filled(b"[", b"1", b"]"),
    "numbers": lambda: _filled(b"[", b"1.5e300", b"]"),
    "one number": lambda: b"1" * SIZE,
    "texts": lambda: _filled(b"[", b'""', b"]"),
    "texts, at most 90,000": lambda: _filled(b"[", b'"%b"' % (b"x" * 184), b"]"),
    "literals": lambda: _filled(b"[", b"null", b"]"),
    "a list with a text of escapes": lambda: _filled(b'["', b"\\n", b'"]', b""),
    "a list with a list": lambda: _filled(b"[[", b"[]", b"]]"),
    "values just within the limit": lambda: b"[" + b",".join([b"12345"] * 2_790_000) + b"]",
    "lists just within the limit": lambda: _filled(b"[", (b"[]," * 1_400_000)[:-1] + b" " * 7_900_000, b"]", b""),
    "spaces": lambda: _filled(b"[", b" ", b"]", b""),
    "nested lists": lambda: b"[" * (SIZE // 2) + b"]" * (SIZE // 2),
    "nested objects": lambda: b'{"":' * (SIZE // 5) + b"1" + b"}" * (SIZE // 5),
    "lists of 900 levels": lambda: _filled(b"[", b"[" * 900 + b"]" * 900, b"]"),
    "members": lambda: b"{" + b",".join(b'"%08d":1' % number for number in range(SIZE // 13)) + b"}",
    "members, 44,000": lambda: b"{" + b",".join(b'"%07d":%b' % (n, b"1" * 360) for n in range(44_000)) + b"}",
    "members of one name": lambda: _filled(b"{", b'"a":1', b"}"),
    "members of long names": lambda: _filled(b"{", b'"%b":1' % (b"y" * 400), b"}"),
    "not UTF-8 at the end": lambda: _filled(b'"', b"x", b'\xff"', b""),
}
"""A value of each shape."""
_BODIES: _Places = {
    "prompt": (b'{"model":"m","max_tokens":5,"prompt":', b"}"),
    "stop": (b'{"model":"m","prompt":"a","stop":', b"}"),
    "vllm_xargs": (b'{"model":"m","prompt":"a","vllm_xargs":', b"}"),
    "body": (b"", b""),
}
"""Where the value stands in the body of a request."""
_ANSWERS: _Places = {
    "choices": (b'{"choices":', b"}"),
    "kv_transfer_params": (b'{"kv_transfer_params":', b"}"),
    "answer": (b"", b""),
}
"""The same in an answer of P."""


async def _of_client(body: bytes) -> None:
    try:
        await check_text(body)
        call = await read_call("/v1/completions", body, "application/json", CIMultiDict())
        call, _ = timed(call.with_request_id("r"))
        call.for_prefill({"do_remote_decode": True}, {})
        await asyncio.sleep(0)  # P answers in between
        call.for_decode({"do_remote_prefill": True})
    except (MalformedError, NotJsonError):
        pass


async def _of_prefill(body: bytes) -> None:
    try:
        answer = Whole(200, CIMultiDictProxy(CIMultiDict()), body)
        check_not_aborted("/v1/completions", answer.body)
        await transfer_params(answer)
    except PodFailure:
        pass


async def _longest(work: _Work, body: bytes) -> float:
    """Seconds of the longest stretch."""
    loop, longest, began = asyncio.get_running_loop(), 0.0, time.thread_time()
    handle: asyncio.Handle | None = None

    def turn() -> None:
        nonlocal longest, began, handle
        longest = max(longest, time.thread_time() - began)
        began = time.thread_time()
        handle = loop.call_soon(turn)

    turn()
    await asyncio.sleep(0)
    await work(body)
    longest = max(longest, time.thread_time() - began)
    if handle is not None:
        handle.cancel()
    return longest


async def _measured(work: _Work, values: _Values, places: _Places, rounds: int) -> None:
    for shape, made in values.items():
        value = made()
        for place, (before, after) in places.items():
            body = before + value + after
            times = []
            for _ in range(rounds):
                gc.collect()
                times.append(await _longest(work, body))
            print(f"{1000 * min(times):6.1f} ms  {place}: {shape}", flush=True)


async def _main(rounds: int, shape: str) -> None:
    chosen = {name: made for name, made in _VALUES.items() if shape in name}
    print("bodies of clients")
    await _measured(_of_client, chosen, _BODIES, rounds)
    print("answers of P")
    await _measured(_of_prefill, chosen, _ANSWERS, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", default="", help="text in the names of the shapes to measure")
    arguments = parser.parse_args()
    asyncio.run(_main(arguments.rounds, arguments.shape))
