"""Waits of tests on what other processes and threads do: each has a bound, and says in its failure what it waited for.

The bounds are for what never happens. Nothing that works takes as long, on a machine with much other work either. What
waits inside one event loop needs none of these: e2e/hangs.py ends such a test, and shows where its tasks wait.
"""

import asyncio
import inspect
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

LONG_S = 240.0
_SHORTEST_S, _LONGEST_S = 0.02, 0.25
_OF_THE_WAIT = 0.1
"""Looks come less often the longer a wait takes: an API server that is asked needs the CPU of what is waited for."""

Process = TypeVar("Process", bound=subprocess.Popen[bytes] | subprocess.Popen[str])
Holds = Callable[[], object]
What = str | Callable[[], str]


class WaitedInVainError(AssertionError):
    """What was waited for did not happen."""

    def __init__(self, what: What, within: float) -> None:
        super().__init__(f"waited {within:g} s in vain: {what if isinstance(what, str) else what()}")


def wait_until(holds: Holds, what: What, *, within: float = LONG_S) -> None:
    """Wait until a condition holds.

    Args:
        holds: The condition.
        what: The condition in words, for the failure. A function can say what there is instead.
        within: Seconds.
    """
    begin = time.monotonic()
    while not holds():
        time.sleep(_pause(time.monotonic() - begin, what, within))


async def until(holds: Callable[[], object | Awaitable[object]], what: What, *, within: float = LONG_S) -> None:
    """The same in an event loop, for a condition that may be asked asynchronously."""
    begin = time.monotonic()
    while True:
        seen = holds()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen:
            return
        await asyncio.sleep(_pause(time.monotonic() - begin, what, within))


def _pause(waited: float, what: What, within: float) -> float:
    """Seconds until the next look.

    Raises:
        WaitedInVainError: The time is over.
    """
    if waited > within:
        raise WaitedInVainError(what, within)
    return min(max(_SHORTEST_S, _OF_THE_WAIT * waited), _LONGEST_S)


async def ended(process: asyncio.subprocess.Process, what: str, *, within: float = LONG_S) -> tuple[str, str]:
    """Wait until a process has ended; what it wrote to pipes comes back. One that does not end is killed."""
    communicated = asyncio.create_task(process.communicate())
    done, _ = await asyncio.wait({communicated}, timeout=within)
    if not done:
        with suppress(ProcessLookupError):
            process.kill()
    output, errors = (text.decode(errors="replace") if text else "" for text in await communicated)
    if not done:
        raise WaitedInVainError(f"{what} ends. It wrote:\n{output}{errors}", within)
    return output, errors


@contextmanager
def killed_in_the_end(process: Process) -> Iterator[Process]:
    """A process that ends with its test, also with a failed one: `with Popen(...)` would wait for it without bound."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
