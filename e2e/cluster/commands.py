"""Run short commands and say in plain words why one failed."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from e2e.cluster.errors import ClusterError

Word = str | Path


def run(command: Sequence[Word], *, stdin: str | IO[bytes] | None = None, timeout: float = 60) -> str:
    """Run a command and return what it printed.

    Raises:
        ClusterError: It failed, took too long or is not installed; the message holds its last words.
    """
    words = [str(word) for word in command]
    done: subprocess.CompletedProcess[str]
    try:
        done = subprocess.run(words, **_input(stdin), capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError:
        raise ClusterError(
            f"{words[0]} is not installed: run `python -m e2e.cluster prepare`, which installs it."
        ) from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{' '.join(words)}` did not finish within {timeout:.0f} s.") from None
    if done.returncode:
        reason = (done.stderr or done.stdout).strip() or "it printed nothing"
        raise ClusterError(f"`{' '.join(words)}` failed: {reason[-2000:]}")
    return done.stdout


def _input(stdin: str | IO[bytes] | None) -> dict[str, Any]:
    return {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin or subprocess.DEVNULL}


def succeeds(command: Sequence[Word]) -> bool:
    """Say whether a command exits with 0; what it prints is dropped."""
    return subprocess.run([str(word) for word in command], capture_output=True, check=False).returncode == 0
