"""Commands on a terminal, whose width decides how they print."""

import asyncio
import os
import sys
import termios
from asyncio.subprocess import DEVNULL

import click
import pytest

_PROGRAM = "from pdinference.cli import main; main()"


def as_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Rich takes the standard output of this process for a terminal without colours."""
    for name, value in (("TTY_COMPATIBLE", "1"), ("COLUMNS", str(width)), ("NO_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)


async def on_terminal(width: int, *words: str) -> str:
    """What a process on a terminal of some columns prints, on both outputs, without colours."""
    ours, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, width))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    environment["TERM"] = "xterm"
    command = [sys.executable, "-c", _PROGRAM, *words]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    printed = await asyncio.to_thread(_read, ours)
    await process.wait()
    return click.unstyle(printed.decode().replace("\r\n", "\n"))


def _read(descriptor: int) -> bytes:
    """All that the terminal gets until its last user ends."""
    read = b""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        try:
            while part := file.read(2**16):
                read += part
        except OSError:  # EIO, which is how a terminal ends
            pass
    return read
