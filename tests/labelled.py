"""Processes that run at once. Each line that one of them prints is printed as it comes, with its label before it."""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import click

_LONGEST_LINE = 2**24
_LAST_LINES = 20
"""Enough for what pytest says at its end: the tests that failed, each in a line."""


@dataclass
class Labelled:
    """One process.

    Attributes:
        label: Before its lines: `1| ...`.
        environment: Variables besides those of this process.
        group: Whether Ctrl-C goes to all processes of its group, as from a terminal, or to it alone.
        seconds: How long it took.
        last: Its last lines.
    """

    label: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    group: bool = False
    seconds: float = 0.0
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    _process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Run it; the exit status comes back."""
        begin = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            env=os.environ | self.environment | {"PYTHONUNBUFFERED": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_LONGEST_LINE,
            # A terminal sends Ctrl-C to all processes of its group. This one must get it once, from `interrupt`: at a
            # second one pytest ends without taking its clusters down.
            process_group=0,
        )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.say(line.decode(errors="replace").rstrip("\n"))
        code = await self._process.wait()
        self.seconds = time.monotonic() - begin
        self.say(f"ended with {code} after {self.seconds:.0f} s")
        return code

    @property
    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._process is not None and self._process.returncode is None

    def interrupt(self) -> None:
        """Let it clean up and end."""
        if self._process is None or not self.running:
            return
        with suppress(ProcessLookupError):
            if self.group:
                os.killpg(self._process.pid, signal.SIGINT)
            else:
                self._process.send_signal(signal.SIGINT)

    def say(self, line: str) -> None:
        """Print a line with the label."""
        self.last.append(line)
        click.echo(f"{self.label}| {line}")


def endings(processes: Iterable[Labelled]) -> str:
    """The last lines of these processes. Where others ran beside them, these lines are far above the end."""
    return "\n".join(line for each in processes for line in (f"The last lines of {each.label}:", *each.last))


def interrupt_on_signals(processes: Iterable[Labelled], also: Callable[[], None] = lambda: None) -> None:
    """Pass Ctrl-C and SIGTERM on to all that run."""
    chosen = list(processes)

    def interrupt() -> None:
        also()
        for process in chosen:
            process.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
