"""Hostile requests over real sockets: the router goes on serving, pods get only what they may get, and nothing is kept.

`make explore` sends more of them, others each time.
"""

import asyncio
import gc
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pdinference.engine.connectors.handover import MEMBER, Prefill
from pdinference.engine.connectors.registry import HANDOVERS
from pdinference.router.calls import Call
from pdinference.router.endpoints import GET, POST
from pdinference.router.exchange import Exchange
from pdinference.router.record import Record
from pdinference.router.server import RequestLimits
from tests.router.engines import ENGINE_LOGGER, PARAMS, Engine, Fleet, P, fleet
from tests.router.hostile_http import HIDDEN, Case, cases
from tests.waiting import until

_SEED = int(os.environ.get("HOSTILE_SEED", "1"))
_CASES = int(os.environ.get("HOSTILE_CASES", "400"))
_EACH = 200
_AT_ONCE = 16
_PATIENCE_S = 0.2
"""How long a client waits for more of an answer. Many of the requests have none, because they are not complete."""

_SPLIT = [path for path, limits in POST.items() if limits]
_ALLOWED = {f"POST {path}" for path in POST} | {f"GET {path}" for path in GET}
_NEVER = (
    *("Authorization", "Connection", "Content-Encoding", "Cookie", "Expect", "Keep-Alive"),
    *("Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "X-Api-Key"),
)
_ONCE = ("Host", "X-Request-Id")
_OF_A_HANDOVER = -len(f"-{uuid4()}")
"""What a hand-over appends to the id of the request."""
_ONCE_AT_MOST = ("Content-Length", "Content-Type")
_FOR_PREFILL = HANDOVERS["nixl"].to_prefill(Prefill(""))
_ACCESS = "pdinference.router.access"
_OF_A_REQUEST = (Call, Exchange, Record)


@pytest.mark.parametrize("part", range(max(1, _CASES // _EACH)))
async def test_hostile_requests_do_no_harm(part: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before = objects()
    async with fleet("p", "d", limits=RequestLimits(body=2_000_000, body_seconds=0.2)) as world:
        found = tuple(cases(_SEED + part, _EACH))
        waiting = iter(found)
        await asyncio.gather(*(attack(world, waiting) for _ in range(_AT_ONCE)))
        await until_nothing_is_left(world, before)

    of_router = [record for record in caplog.records if record.name != ENGINE_LOGGER]
    assert not {f"{record.message} {record.exc_info}" for record in of_router if record.levelno >= logging.ERROR}
    for engine in world.engines.values():
        check(engine)
    check_numbers(world, [json.loads(record.message) for record in of_router if record.name == _ACCESS])
    assert count(world["d"], "") - count(world["d"], "good") <= sum(case.most for case in found)
    assert count(world["d"], HIDDEN) == count(world["p"], HIDDEN) == 0


async def attack(world: Fleet, waiting: Iterator[Case]) -> None:
    """Send the cases that wait, one after the other. After each, a good request has to be answered."""
    for case in waiting:
        answer = await exchanged(world, case)
        assert b" 500 " not in answer, (case, answer)
        status, _, body = await world.post({"stream": True}, headers={"X-Request-Id": "good"})
        assert (status, body.endswith(b"data: [DONE]\n\n")) == (200, True), case


async def exchanged(world: Fleet, case: Case) -> bytes:
    """What comes back until nothing more does."""
    host, _, port = world.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    got = b""
    with suppress(ConnectionError, TimeoutError):
        for part in case.parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        while chunk := await asyncio.wait_for(reader.read(65_536), _PATIENCE_S):
            got += chunk
    writer.transport.abort()
    return got


def check(engine: Engine) -> None:
    """Whether an engine got only what it may get."""
    assert set(engine.lines) <= _ALLOWED
    for headers in engine.headers:
        assert not [name for name in _NEVER if name in headers], headers
        assert all(len(headers.getall(name, ())) == 1 for name in _ONCE), headers
        assert all(len(headers.getall(name, ())) <= 1 for name in _ONCE_AT_MOST), headers
    for line, raw in zip(engine.lines, engine.raw, strict=True):
        if line.removeprefix("POST ") not in _SPLIT:
            continue
        body = json.loads(raw, object_pairs_hook=without_duplicates)
        assert "ec_transfer_params" not in body
        if engine.role is P:
            assert body[MEMBER] == _FOR_PREFILL
            assert body["stream"] is False
        else:
            assert body.get(MEMBER, PARAMS) == PARAMS


def without_duplicates(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    assert len(found) == len(members) or MEMBER not in found, members
    return found


def check_numbers(world: Fleet, logged: Sequence[dict[str, Any]]) -> None:
    """Whether each try of a request was one request to a pod."""
    tries = Counter[str]()
    for line in logged:
        tries[line["request_id"]] += 1 + line["retries"]
    for engine in world.engines.values():
        sent = (headers["X-Request-Id"] for headers in engine.headers)
        for name, number in Counter(name if name in tries else name[:_OF_A_HANDOVER] for name in sent).items():
            assert number <= tries[name], name


def count(engine: Engine, name: str) -> int:
    """Requests whose id begins with this."""
    return sum(headers["X-Request-Id"].startswith(name) for headers in engine.headers)


async def until_nothing_is_left(world: Fleet, before: int) -> None:
    """No connection of a client, no load, and no more objects of requests than before."""
    await world.client.close()

    async def nothing() -> bool:
        return not (
            connections(world.url.rpartition(":")[2])
            or any(pod.under_way or pod.tokens for pod in world.pods)
            or objects() > before
        )

    await until(nothing, "nothing of the requests is left", within=30)


def objects() -> int:
    """Objects of requests that are in memory; other tests may have left some."""
    gc.collect()
    return sum(isinstance(one, _OF_A_REQUEST) for one in gc.get_objects())


def connections(port: str) -> int:
    """Open connections to a port of this machine, by the side of the server."""
    own = f":{int(port):04X}"
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return sum(line.split()[1].endswith(own) and line.split()[3] == "01" for line in lines)
