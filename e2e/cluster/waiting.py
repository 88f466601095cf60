"""Wait for conditions, never for a fixed time."""

import time
from collections.abc import Callable
from pathlib import Path

import click

from e2e.cluster.errors import ClusterError

_PAUSE_SECONDS = 0.05
_QUIET_SECONDS = 5.0
_TAIL_LINES = 15


def wait_until(what: str, condition: Callable[[], bool], *, timeout: float, log: Path | None = None) -> None:
    """Return as soon as the condition holds; say what is awaited once that takes a while.

    Raises:
        ClusterError: The time is up; the message ends with the log that tells why.
    """
    begin = time.monotonic()
    announced = False
    while not condition():
        waited = time.monotonic() - begin
        if waited > timeout:
            raise ClusterError(f"Waited {timeout:.0f} s in vain for {what}.{tail(log)}")
        if waited > _QUIET_SECONDS and not announced:
            click.echo(f"  waiting for {what} (up to {timeout:.0f} s)", err=True)
            announced = True
        time.sleep(_PAUSE_SECONDS)


def tail(log: Path | None) -> str:
    """The end of a log, ready to be appended to an error message."""
    if log is None:
        return ""
    if not log.exists():
        return f"\nIts log {log} does not exist yet."
    lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return f"\nThe last lines of {log}:\n" + "\n".join(f"  {line[:400]}" for line in lines)
