"""Runs a command beside processes that use all the CPU: `python -m tests.busy --times=3 make checks`.

A test that passes only on a quiet machine fails here.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

LOOP = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""
"""Ends when the process that has started it ends, however that ends."""


@contextmanager
def load(loops: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many busy processes."""
    command = (sys.executable, "-c", LOOP, str(os.getpid()))
    # In sessions of their own: the Ctrl-C of a terminal would fill the screen with their tracebacks.
    processes = [subprocess.Popen(command, start_new_session=True) for _ in range(loops)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def ended(command: Sequence[str]) -> int:
    """Run a command; its exit status comes back. Ctrl-C, which it gets itself, and SIGTERM let it clean up first."""
    processes: list[subprocess.Popen[bytes]] = []
    ending = False

    def end(*_: object) -> None:
        nonlocal ending
        ending = True
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, end)
    processes.append(process := subprocess.Popen(command))
    if ending:  # before the process was known
        process.terminate()
    return process.wait()


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--loops", type=click.IntRange(1), default=2, show_default=True)
@click.option("--times", type=click.IntRange(1), default=1, show_default=True)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(loops: int, times: int, command: Sequence[str]) -> None:
    """Run a command some times in a row, until it fails."""
    with load(loops):
        for number in range(1, times + 1):
            begin = time.monotonic()
            code = ended(command)
            took = f"Run {number} of {times} beside {loops} busy loops took {time.monotonic() - begin:.0f} s"
            click.echo(f"{took}, and {'passed' if code == 0 else f'failed with {code}'}.")
            if code != 0:
                sys.exit(1)


if __name__ == "__main__":
    main()
