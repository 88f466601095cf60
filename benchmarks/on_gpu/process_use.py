"""What a process takes of the machine's CPUs, second by second, with the thread of its event loop apart."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, NamedTuple

_EVERY_S: Final = 0.5
_TICKS: Final = os.sysconf("SC_CLK_TCK")

Sample = dict[str, float]


class _Used(NamedTuple):
    """Seconds of a process so far.

    Attributes:
        loop: CPU of its main thread.
        waited: In which the main thread could have run, and had no CPU; 0 where the kernel does not count them.
        others: CPU of its other threads.
    """

    loop: float
    waited: float
    others: float


def _used(pid: int) -> _Used:
    tasks = Path(f"/proc/{pid}/task")
    loop, others = 0.0, 0.0
    for thread in tasks.iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            _, cpu = stat_of(thread)
            loop, others = (loop + cpu, others) if thread.name == str(pid) else (loop, others + cpu)
    waited = 0.0
    with contextlib.suppress(FileNotFoundError):
        waited = int((tasks / str(pid) / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return _Used(loop, waited, others)


def stat_of(task: Path) -> tuple[str, float]:
    """The parent of a process or thread, and the seconds of CPU that it has had, by its folder in /proc."""
    fields = (task / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return fields[1], (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.asynccontextmanager
async def watched(pid: int, events: Callable[[], int]) -> AsyncIterator[list[Sample]]:
    """Samples of a process while the block runs: shares of a second, and events a second.

    Args:
        pid: The process.
        events: A counter.
    """
    samples: list[Sample] = []
    task = asyncio.create_task(_watch(pid, events, samples))
    try:
        yield samples
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(pid: int, events: Callable[[], int], samples: list[Sample]) -> None:
    start = last = time.monotonic()
    used, counted = _used(pid), events()
    while True:
        await asyncio.sleep(_EVERY_S)
        now, used_now, counted_now = time.monotonic(), _used(pid), events()
        shares = {
            name: round((new - old) / (now - last), 4)
            for name, new, old in zip(_Used._fields, used_now, used, strict=True)
        }
        rate = round((counted_now - counted) / (now - last))
        samples.append({"at": round(now - start, 3), **shares, "events": rate})
        last, used, counted = now, used_now, counted_now
