"""Looks at the cluster again and again, for commands that show its present state.

Tests: tests/cli/test_status.py, tests/cli/test_top.py, tests/cli/test_logs.py
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live as Screen
from rich.text import Text

from pdinference.cli.terminal import terminal
from pdinference.cluster.errors import ApiError

_SECONDS: Final = 2.0
"""Time between two looks."""

StateT = TypeVar("StateT")


async def looks(read: Callable[[], Awaitable[StateT]]) -> AsyncIterator[tuple[StateT | None, str]]:
    """The present state and an empty text; or None, and why the API server cannot answer now. Without end.

    Raises:
        ApiError: The API server returned an error that another try will not mend.
    """
    while True:
        yield await _looked(read)
        await asyncio.sleep(_SECONDS)


async def keep_live(read: Callable[[], Awaitable[StateT]], view: Callable[[StateT, Console], RenderableType]) -> None:
    """Show the present state on the terminal. While the API server cannot answer, the last one stays. Without end.

    Args:
        read: Reads the state.
        view: What is shown of it.

    Raises:
        ApiError: The API server returned an error that another try will not mend.
    """
    last: RenderableType = Text("")
    console = terminal()
    with Screen(console=console, auto_refresh=False, vertical_overflow="crop") as screen:
        async for state, lost in looks(read):
            if state is not None:
                last = view(state, console)
            screen.update(Group(last, Text(f"\n{lost}", style="yellow")) if lost else last, refresh=True)


async def _looked(read: Callable[[], Awaitable[StateT]]) -> tuple[StateT | None, str]:
    try:
        return await read(), ""
    except ApiError as error:
        if not error.transient:
            raise
        return None, f"{error.message}. Trying again every {_SECONDS:g} s."
