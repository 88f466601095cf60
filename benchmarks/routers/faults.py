"""What becomes of requests when one of four servers fails behind a router, of six kinds, and when the router is ended.

Each router has servers of its own, in a process each, and gets the same load: clients that ask one request after the
other, also after a failure. All routers are measured at once, so times are no comparison of speed.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fake_vllm import FAULTS
from benchmarks.processes import ports
from benchmarks.routers import client, pods
from benchmarks.routers.launch import Router, Tools, router_of
from benchmarks.routers.servers import counts, fail, started

if TYPE_CHECKING:
    import subprocess

HANGS: Final = "hangs"
REPLACED: Final = "removed, another one added"
ENDED: Final = "the router gets SIGTERM"
KINDS: Final = (*FAULTS, HANGS, REPLACED, ENDED)
_SERVERS, _CLIENTS, _TOKENS, _PAUSE_MS = 4, 8, 40, 10
_AFTER_S, _SECONDS = 3.0, 20.0
LIMIT_S: Final = 30.0
"""When clients give up."""
LATE_S: Final = 2.0
"""A request that takes longer, of at least 0.4 s, was late."""
_LAST_S: Final = 5.0
_GRACE_S: Final = 3.0
_OPEN: Final = 20


@dataclass
class Place:
    """A router with its servers.

    Attributes:
        router: The router.
        ports: Of the servers; the last one is not known to the router at first.
        processes: Of the servers.
    """

    router: Router
    ports: list[int]
    processes: list["subprocess.Popen[bytes]"]


def measure(tools: Tools, names: Sequence[str], kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each router and fault."""
    for kind in kinds:
        with ExitStack() as stack, ThreadPoolExecutor() as threads:
            places = list(threads.map(lambda name: _place(stack, tools, name), names))
            yield from asyncio.run(_all(places, kind))


async def _end(router: Router) -> dict[str, Any]:
    """Streams of eight seconds, and SIGTERM after two."""
    asked = client.body("word " * 100, 100, pause_ms=80)
    sending = asyncio.create_task(client.send(router.port, [0.0] * _OPEN, lambda _: asked, LIMIT_S))
    await asyncio.sleep(2)
    for pid in router.pids:
        os.kill(pid, signal.SIGTERM)
    return outcomes(await sending, 2.0)


def _place(stack: ExitStack, tools: Tools, name: str) -> Place:
    places = ports(_SERVERS + 1)
    with ThreadPoolExecutor() as threads:
        processes = list(threads.map(lambda port: stack.enter_context(started([port])), places))
    return Place(stack.enter_context(router_of(name, tools, places[:_SERVERS])), places, processes)


async def _all(places: Sequence[Place], kind: str) -> list[dict[str, Any]]:
    found = await asyncio.gather(*(_one(place, kind) for place in places))
    return [{"router": place.router.name, "fault": kind} | row for place, row in zip(places, found, strict=True)]


async def _one(place: Place, kind: str) -> dict[str, Any]:
    if kind == ENDED:
        return await _end(place.router)
    seen: dict[str, Any] = {}
    chance = iter(range(10**9))

    def make() -> dict[str, Any]:
        return client.body(f"{next(chance)} " + "word " * 300, _TOKENS, pause_ms=_PAUSE_MS)

    async def amid() -> None:
        await asyncio.sleep(_AFTER_S)
        await _fault(place, kind, seen)

    answers = await client.keep_asking(
        place.router.port, make, amid(), clients=_CLIENTS, seconds=_SECONDS, limit_s=LIMIT_S
    )
    return outcomes(answers, _AFTER_S) | seen


async def _fault(place: Place, kind: str, seen: dict[str, Any]) -> None:
    victim, process = place.ports[0], place.processes[0]
    if kind == HANGS:
        process.send_signal(signal.SIGSTOP)
    elif kind == REPLACED:
        await asyncio.to_thread(pods.replace, place.router, place.ports)
        await asyncio.sleep(_GRACE_S)
        process.kill()
        await asyncio.sleep(_LAST_S)
        seen["new_pod_requests"] = (await asyncio.to_thread(counts, place.ports[-1]))["requests"]
    else:
        await asyncio.to_thread(fail, victim, kind)
        if process.poll() is None and kind not in FAULTS[:2]:
            await _visits(victim, seen)


async def _visits(victim: int, seen: dict[str, Any]) -> None:
    """How many requests the victim still gets at the end of the load."""
    await asyncio.sleep(_SECONDS - _AFTER_S - _LAST_S)
    before = (await asyncio.to_thread(counts, victim))["requests"]
    await asyncio.sleep(_LAST_S)
    seen["victim_requests_in_last_5_s"] = (await asyncio.to_thread(counts, victim))["requests"] - before


def outcomes(answers: Sequence[client.Answer], fault_at: float) -> dict[str, Any]:
    """What became of the requests of a load in which a server failed.

    Args:
        answers: Of all requests.
        fault_at: Seconds from the start of the load to the fault.
    """
    bad = [one for one in answers if one.outcome != client.WHOLE]
    after = [one for one in answers if one.at + one.whole > fault_at]
    whole = [one for one in after if one.outcome == client.WHOLE]
    touched = [one for one in after if one.outcome != client.WHOLE or max(one.first, one.gap) > LATE_S]
    return {
        "requests": len(answers),
        "lost": len(bad),
        "how": dict(Counter(one.outcome for one in bad)),
        "late": sum(max(one.first, one.gap) > LATE_S for one in whole),
        "longest_until_failed_s": max((one.whole for one in bad), default=0.0),
        "longest_first_token_s": max((one.first for one in whole), default=0.0),
        "longest_gap_s": max((one.gap for one in whole), default=0.0),
        "last_touched_s": max((one.at - fault_at for one in touched), default=None),
    }


Fault = Callable[[], Awaitable[None]]


async def at_once(
    routers: Sequence[tuple[str, int]], make: Callable[[], dict[str, Any]], clients: int, seconds: float, fault: Fault
) -> list[dict[str, Any]]:
    """A row for each of several routers before the same servers, of which one fails."""

    async def nothing() -> None:
        return

    async def amid() -> None:
        await asyncio.sleep(_AFTER_S)
        await fault()

    began = time.monotonic()
    found = await asyncio.gather(
        *(
            client.keep_asking(
                port, make, nothing() if number else amid(), clients=clients, seconds=seconds, limit_s=LIMIT_S
            )
            for number, (_, port) in enumerate(routers)
        )
    )
    took = time.monotonic() - began
    return [
        {"router": name, "seconds": took} | outcomes(answers, _AFTER_S)
        for (name, _), answers in zip(routers, found, strict=True)
    ]
