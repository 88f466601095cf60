"""Runs simulations in several processes, with progress on standard error.

Tests: tests/advise/commands/advise/test_advise_progress.py, tests/advise/commands/advise/test_advise.py
"""

import io
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from pdinference_advise.advice.objectives import RequestObjectives
from pdinference_advise.advice.trial import Task, Trial, run_trial
from pdinference_advise.advice.workload.trace import Trace

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_given: tuple[Trace, RequestObjectives] | None = None
"""Of a worker process: the load, sent once."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


class Simulations:
    """Does simulations, with a progress bar on standard error if that is a terminal."""

    def __init__(self, run: Callable[[Sequence[Task]], Iterable[Trial]], bar: "ProgressBar[int]") -> None:
        self._run, self._bar = run, bar

    def __call__(self, tasks: Sequence[Task]) -> list[Trial]:
        """The trials in the order of their tasks."""
        found = []
        for trial in self._run(tasks):
            found.append(trial)
            self._bar.update(1)
        return found

    def expect(self, number: int) -> None:
        """So many are still to come, at most."""
        self._bar.length = self._bar.pos + number
        self._bar.finished = not number


@contextmanager
def simulations(load: Trace, objectives: RequestObjectives, jobs: int) -> Iterator[Simulations]:
    """Simulate on several cores; with one job, in this process.

    Args:
        load: The load.
        objectives: What its requests should keep.
        jobs: Processes.
    """
    shown = sys.stderr if sys.stderr.isatty() else io.StringIO()
    bar: ProgressBar[int] = click.progressbar(length=1, label="simulations", show_pos=True, file=shown)
    if jobs == 1:
        with bar:
            yield Simulations(lambda tasks: (run_trial(task, load, objectives) for task in tasks), bar)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pdinference_advise.commands.advise.processes"])
    with ProcessPoolExecutor(jobs, context, initializer=_receive, initargs=(load, objectives)) as pool, bar:
        yield Simulations(lambda tasks: pool.map(_work, tasks), bar)


def _receive(load: Trace, objectives: RequestObjectives) -> None:
    global _given  # noqa: PLW0603 - an initializer can leave its arguments nowhere else
    _given = load, objectives


def _work(task: Task) -> Trial:
    if _given is None:
        raise RuntimeError("the process has no load")
    load, objectives = _given
    return run_trial(task, load, objectives)
