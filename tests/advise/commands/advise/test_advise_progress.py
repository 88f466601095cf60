"""The progress of `pdinference advise` on a terminal."""

import os
import pty
import re
import subprocess
import sys

from click.testing import CliRunner

from pdinference.cli import main
from tests.conftest import REPOSITORY

_COMMAND = (
    "advise", "-f", str(REPOSITORY / "examples/llama-8b.yaml"), "--jobs", "1", "--gpus", "1xH200",
    "--rate", "5", "--prompt-tokens", "1000", "--answer-tokens", "50", "--seconds", "60", "-o", "yaml",
)  # fmt: skip


def _read(terminal: int) -> str:
    """All that is written to a terminal until the last process closes it."""
    found = b""
    try:
        while part := os.read(terminal, 65536):
            found += part
    except OSError:
        pass  # Linux: the other end is closed
    return found.decode()


def test_a_terminal_shows_how_many_of_all_simulations_are_done() -> None:
    terminal, other_end = pty.openpty()
    program = "from pdinference.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *_COMMAND], stdout=subprocess.PIPE, stderr=other_end
    ) as process:
        os.close(other_end)
        shown = _read(terminal)
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"apiVersion: ")
    os.close(terminal)
    assert process.returncode == 0, shown
    counts = [(int(done), int(total)) for done, total in re.findall(r"(\d+)/(\d+)", shown)]
    assert all(done <= total for done, total in counts)
    assert counts[-1][0] == counts[-1][1] > 1


def test_nothing_is_shown_without_a_terminal() -> None:
    result = CliRunner().invoke(main, _COMMAND)
    assert result.exit_code == 0
    assert result.stderr == ""
