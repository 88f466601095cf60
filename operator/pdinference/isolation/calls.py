"""Calls of functions that may not end well, with the same interface in another process and in this one."""

from collections.abc import Callable, Mapping
from typing import Protocol

Task = Callable[[bytes], bytes]


class EndedError(Exception):
    """The function took too long, needed too much memory, crashed, or raised; the message says which."""


class BusyError(Exception):
    """The call was not made, because too many others wait or the process is being replaced. Try again."""


class Calls(Protocol):
    """Makes calls."""

    async def call(self, task: str, payload: bytes, *, turn: str) -> bytes:
        """Call a function.

        Args:
            task: Name of the function.
            payload: Its argument.
            turn: Whose call it is. Calls of the same one wait for each other; others get their turn in between.

        Raises:
            EndedError: The function did not end well. Calling it again with the same payload will not help.
            BusyError: It was not called.
        """
        ...


class InProcess:
    """Calls in this process, without limits: for the command line and tests.

    Args:
        tasks: The functions by name.
    """

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks

    async def call(self, task: str, payload: bytes, *, turn: str) -> bytes:
        """Call a function; what it raises is raised here."""
        return self._tasks[task](payload)
