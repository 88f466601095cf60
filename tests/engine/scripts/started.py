"""A program of `engine/scripts` that runs as a process, and what it has written."""

import subprocess
import sys
import threading
from collections.abc import Mapping

from pdinference.engine.command import script
from tests.waiting import LONG_S, wait_until


class Started:
    """One process, in a session of its own."""

    def __init__(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", script(name), *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.strip() for line in self.process.stdout)

    def says(self, text: str) -> None:
        """Wait until it has written a text."""
        wait_until(lambda: any(text in line for line in self.lines), lambda: f"{text!r} is among {self.lines}")

    def ends(self) -> int:
        """Wait until it has ended; its exit code."""
        return self.process.wait(LONG_S)
