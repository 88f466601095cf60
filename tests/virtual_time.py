"""An event loop with virtual time, independent of the machine."""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _JumpingSelector(selectors.DefaultSelector):
    """Counts the time that the loop would have slept, instead of sleeping."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        self.skipped += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while something runs, and jumps to the next timer when nothing does.

    For tests of timers whose work is in this process alone: a slow machine changes nothing, and no test sleeps.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.skipped

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *_: Any) -> Any:  # type: ignore[override]
        """Refused: the clock would run ahead of the thread."""
        raise NotImplementedError(f"{func} would take real time in a thread.")
