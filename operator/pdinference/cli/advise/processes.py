"""Runs simulations in several processes, with progress on standard error."""

import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import click

from pdinference.advise.objectives import Objectives
from pdinference.advise.search import Simulate
from pdinference.advise.trial import Task, Trial, run_trial
from pdinference.advise.workload.trace import Trace

_given: tuple[Trace, Objectives] | None = None
"""Of a worker process: the load, sent once."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def simulations(load: Trace, objectives: Objectives, jobs: int) -> Iterator[Simulate]:
    """Simulate on several cores; with one job, in this process.

    Args:
        load: The load.
        objectives: What its requests should keep.
        jobs: Processes.
    """
    counter = _Counter()
    try:
        if jobs == 1:
            yield lambda tasks: counter.counted(run_trial(task, load, objectives) for task in tasks)
            return
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["pdinference.cli.advise.processes"])
        with ProcessPoolExecutor(jobs, context, initializer=_receive, initargs=(load, objectives)) as pool:
            yield lambda tasks: counter.counted(pool.map(_work, tasks))
    finally:
        counter.clear()


def _receive(load: Trace, objectives: Objectives) -> None:
    global _given  # noqa: PLW0603 - an initializer can leave its arguments nowhere else
    _given = load, objectives


def _work(task: Task) -> Trial:
    if _given is None:
        raise RuntimeError("the process has no load")
    load, objectives = _given
    return run_trial(task, load, objectives)


class _Counter:
    """Counts trials in a line on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._done = 0
        self._shown = sys.stderr.isatty()

    def counted(self, trials: Iterable[Trial]) -> list[Trial]:
        """All of them, once they are there."""
        found = []
        for trial in trials:
            found.append(trial)
            self._done += 1
            if self._shown:
                click.echo(f"\r{self._done} simulations", nl=False, err=True)
        return found

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
