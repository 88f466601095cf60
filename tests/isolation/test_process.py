"""However a task of the isolated process ends, its caller gets a message, and others are served."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor
from pdinference.isolation.calls import BusyError, EndedError
from pdinference.isolation.process import ChildProgram, IsolatedProcess, LaneLimits
from tests.waiting import LONG_S, until

PROGRAM = ChildProgram("tests.isolation.tasks:tasks", "the settings")
HURRIED = LaneLimits(cpu_seconds=1, seconds=600, patience=120)
LIMITS = LaneLimits(cpu_seconds=60, seconds=1, patience=120)
AMPLE = LaneLimits(cpu_seconds=60, seconds=60, patience=120)


def running(process: IsolatedProcess) -> AbstractAsyncContextManager[None]:
    return Supervisor(Metrics()).running("isolated-process", process.keep())


@pytest.fixture
async def isolated() -> AsyncIterator[IsolatedProcess]:
    process = IsolatedProcess(PROGRAM, {"one": HURRIED, "other": AMPLE, "impatient": LIMITS}, CollectorRegistry())
    async with running(process):
        async with asyncio.timeout(LONG_S):
            await process.ready.wait()
        yield process


async def call(process: IsolatedProcess, task: str, payload: bytes = b"", turn: str = "ns", lane: str = "one") -> bytes:
    return await process.lanes[lane].call(task, payload, turn=turn)


async def test_calls_are_answered(isolated: IsolatedProcess) -> None:
    large = os.urandom(3 * 2**20)
    assert await call(isolated, "echo", large) == large
    assert await call(isolated, "settings") == b"the settings"
    assert await call(isolated, "pid") == await call(isolated, "pid")
    assert await call(isolated, "pid") != await call(isolated, "pid", lane="other")


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("_hang", "took more than 1 s of CPU time"),
        ("_hang_in_c", "took longer than 1 s"),
        ("_ignore_signals", "took longer than 1 s"),
        ("_bomb", "needed more than 64 MiB"),
        ("_slow_bomb", "needed more than 64 MiB"),
        ("long", "needed more than 64 MiB"),
        ("_crash", f"crashed (signal {signal.SIGSEGV:d})"),
        ("_leave", "crashed"),
        ("_raise", "failed (RuntimeError). This is a bug of the operator"),
        ("_recurse", "failed (RecursionError)"),
    ],
)
async def test_a_call_that_does_not_end_well_harms_no_other(
    isolated: IsolatedProcess, task: str, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    pid = isolated.pid
    with pytest.raises(EndedError) as ended:
        await call(isolated, task, lane={"_hang": "one"}.get(task, "impatient" if "longer" in sentence else "other"))
    assert sentence in str(ended.value)
    assert "details for the log" not in str(ended.value)
    assert ("details for the log" in caplog.text) is (task == "_raise")
    assert await call(isolated, "echo", b"next") == b"next"
    assert await call(isolated, "echo", b"other", lane="other") == b"other"
    assert isolated.pid == pid, "only the worker was replaced"


async def test_one_with_many_hanging_calls_leaves_turns_to_others(isolated: IsolatedProcess) -> None:
    hostile = [asyncio.create_task(call(isolated, "_hang", turn="hostile")) for _ in range(10)]
    await asyncio.sleep(0)
    assert await call(isolated, "echo", b"mine", turn="mine") == b"mine"
    assert sum(task.done() for task in hostile) <= 2
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)


async def test_there_is_room_for_a_bounded_number_of_calls(isolated: IsolatedProcess) -> None:
    hostile = [asyncio.create_task(call(isolated, "_hang", turn="hostile")) for _ in range(100)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="Too many"):
        await call(isolated, "echo", turn="hostile")
    assert await call(isolated, "echo", b"mine", turn="mine") == b"mine"
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)


async def test_patience_ends() -> None:
    process = IsolatedProcess(PROGRAM, {"one": LaneLimits(60, 60, patience=0.5)}, CollectorRegistry())
    async with running(process):
        await process.ready.wait()
        with pytest.raises(BusyError, match=r"within 0\.5 s"):
            await call(process, "_hang")


async def test_a_process_that_was_killed_is_replaced(isolated: IsolatedProcess) -> None:
    before = isolated.pid
    hanging = asyncio.create_task(call(isolated, "_hang"))
    await call(isolated, "echo", lane="other")
    os.kill(before, signal.SIGKILL)
    with pytest.raises(BusyError, match="replaced"):
        await hanging
    assert await call(isolated, "echo", b"again") == b"again"
    assert isolated.pid != before


async def test_a_worker_that_dies_while_idle_is_replaced(isolated: IsolatedProcess) -> None:
    os.kill(int(await call(isolated, "pid")), signal.SIGKILL)
    async with asyncio.timeout(LONG_S):
        while True:
            try:
                assert await call(isolated, "echo", b"again") == b"again"
                break
            except BusyError:
                continue


@pytest.mark.parametrize("hangs", [False, True])
async def test_nothing_is_left_when_it_ends(hangs: bool) -> None:
    process = IsolatedProcess(PROGRAM, {"one": LaneLimits(600, 600, 600)}, CollectorRegistry())
    async with running(process):
        await process.ready.wait()
        pids = [process.pid, int(await call(process, "pid"))]
        hanging = asyncio.create_task(call(process, "_hang")) if hangs else None
        await asyncio.sleep(0)
    if hanging is None:
        assert not any(alive(pid) for pid in pids)
    else:
        assert not alive(process.pid)
        await until(lambda: not any(alive(pid) for pid in pids), "init reaps its worker")
        with pytest.raises(BusyError, match="replaced"):
            await hanging


OPERATOR = """
import asyncio
from tests.isolation.test_process import *
async def main():
    process = IsolatedProcess(PROGRAM, {"one": LaneLimits(600, 600, 600)}, CollectorRegistry())
    async with running(process):
        await process.ready.wait()
        print(process.pid, (await call(process, "pid")).decode(), flush=True)
        await call(process, "_hang")
asyncio.run(main())
"""


async def test_a_killed_operator_leaves_no_orphan() -> None:
    operator = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", OPERATOR], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True
    )
    assert operator.stdout is not None
    pids = [int(word) for word in operator.stdout.readline().split()]
    assert len(pids) == 2
    assert all(alive(pid) for pid in pids)
    operator.kill()
    operator.wait()
    await until(lambda: not any(alive(pid) for pid in pids), "its processes end")


def alive(pid: int) -> bool:
    """Whether a process runs. Zombies do not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}
