"""The end of a test that hangs: it fails, and its failure shows what it waits for.

pytest-timeout alone shows the event loop, not the tasks that wait in it, and its bound ends with a failure: a hang in
the teardown of a failed test would never end. Both conftest.py files import the hooks.
"""

import asyncio
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator
from types import FrameType
from typing import Any

import pytest

_FRAMES = 8
_BOUND = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """Set the timer of pytest-timeout, with our own handler."""
    result = yield
    if threading.current_thread() is threading.main_thread():
        item.stash[_BOUND] = settings.timeout
        signal.signal(signal.SIGALRM, _end)
        _begin(item)
    return result


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Set it again after a failure, for the teardown; pytest-timeout has stopped it for those who debug the failure."""
    if _BOUND in node.stash and not node.config.getoption("usepdb"):
        signal.signal(signal.SIGALRM, _end)
        _begin(node)


def _begin(node: pytest.Item | pytest.Collector) -> None:
    # Again and again: a fixture may hang while another one's hang is handled.
    signal.setitimer(signal.ITIMER_REAL, node.stash[_BOUND], node.stash[_BOUND])


def _end(_number: int, frame: FrameType | None) -> None:
    __tracebackhide__ = True
    pytest.fail(f"The test hangs. It waits here:\n{waiting(frame)}")


def waiting(frame: FrameType | None) -> str:
    """Where each task of the running event loop waits, and each thread.

    Args:
        frame: What this thread does.
    """
    parts = []
    if asyncio._get_running_loop() is not None:
        parts += [_part(f"Task {task.get_name()}", _awaiting(task.get_coro())) for task in asyncio.all_tasks()]
    frames = sys._current_frames() | {threading.get_ident(): frame}
    for thread in threading.enumerate():
        if current := frames.get(thread.ident or 0):
            parts.append(_part(f"Thread {thread.name}", reversed([*traceback.walk_stack(current)])))
    return "\n".join(parts)


def _awaiting(waiter: Any) -> Iterator[tuple[FrameType, int]]:
    """The frames of a coroutine that waits for another one, from the outermost one."""
    while waiter is not None:
        kind = next((kind for kind in ("cr", "ag", "gi") if hasattr(waiter, f"{kind}_frame")), None)
        frame = kind and getattr(waiter, f"{kind}_frame")
        if not frame:
            return  # a future, or what has ended
        yield frame, frame.f_lineno
        waiter = getattr(waiter, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


def _part(title: str, frames: Iterable[tuple[FrameType, int]]) -> str:
    return f"{title}\n{''.join(traceback.StackSummary.extract(frames).format()[-_FRAMES:])}"
