"""The interface of calls of functions on hostile input, in the isolated process or in this one.

Tests: tests/isolation/test_process.py, tests/admission/test_webhook.py
"""

from collections.abc import Callable, Mapping
from typing import Protocol

Task = Callable[[bytes], bytes]


class EndedError(Exception):
    """The function exceeded its time or memory, crashed, or raised; the message says which."""


class BusyError(Exception):
    """The call was not made, because too many others wait or the process is being replaced. Retry later."""


class Calls(Protocol):
    """Makes calls."""

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        """Call a function.

        Args:
            task: Name of the function.
            payload: Its argument.
            turn: Source of the call, such as a namespace. Sources of a client take turns.
            client: Who asks, by something that it cannot choose, such as its address. Clients take turns before.

        Raises:
            EndedError: The function did not complete. A retry with the same payload does not help.
            BusyError: The function was not called.
        """
        ...


class InProcess:
    """Calls in this process, without limits: for the command line and tests.

    Args:
        tasks: The functions by name.
    """

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        """Call a function; its exceptions propagate."""
        return self._tasks[task](payload)
