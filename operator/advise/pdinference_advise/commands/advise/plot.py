"""Draws TTFT and TPOT over the rate, by arrangement. Needs matplotlib, which is optional.

Tests: tests/advise/commands/advise/test_advise.py
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from pdinference_advise.advice.advice import Advice
from pdinference_advise.advice.search import SearchResult
from pdinference_advise.advice.trial import Task, Trial
from pdinference_advise.commands.advise.processes import Simulations

_FORMATS: Final = {".svg", ".png"}
_SHARES: Final = (0.25, 0.5, 0.7, 0.85, 1.0, 1.15)
"""Rates, as shares of the largest load that any arrangement bears."""
_REQUESTS: Final = 1500
_MOST_LINES: Final = 6


def require_plotting(file: Path) -> None:
    """Check that a picture can be drawn, before the simulations.

    Raises:
        ClickException: matplotlib is not installed, or the file has another ending.
    """
    if file.suffix not in _FORMATS:
        raise click.ClickException(f"--plot: {file.name} ends with neither .svg nor .png.")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException(
            "--plot needs matplotlib, which is not installed. Install it with `pip install 'pdinference-advise[plot]'`."
        )


def draw(advice: Advice, simulate: Simulations, file: Path) -> None:
    """Simulate some rates, and write the picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional

    shown = advice.results[:_MOST_LINES]
    most = max(1.0, *(one.bears for one in shown))
    scales = [share * most for share in _SHARES]
    tasks = [_task(advice, one, scale) for one in shown for scale in scales]
    simulate.expect(len(tasks))
    trials = simulate(tasks)
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    first, token = figure.subplots(1, 2)
    for index, one in enumerate(shown):
        own = trials[index * len(scales) : (index + 1) * len(scales)]
        rates = [advice.question.peak.rate * trial.scale for trial in own]
        _line(first, rates, own, "ttft", one)
        _line(token, rates, own, "tpot", one)
    objective = advice.question.objectives.default
    for axes, title, limit in ((first, "TTFT", objective.ttft), (token, "TPOT (mean of an answer)", objective.tpot)):
        axes.set_title(f"{title}, {advice.question.objectives.tail} (p50 dashed)")
        axes.set_xlabel("requests per second")
        axes.set_ylabel("ms")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(visible=True, alpha=0.3)
        axes.axvline(advice.question.peak.rate, color="grey", linestyle=":")
        if limit < float("inf"):
            axes.axhline(1000 * limit, color="black", linestyle=":")
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    try:
        figure.savefig(file)
    except OSError as error:
        raise click.ClickException(f"--plot: {file} cannot be written: {error.strerror}.") from None


def _task(advice: Advice, one: SearchResult, scale: float) -> Task:
    built = one.candidate.built
    seconds = max(_REQUESTS / advice.question.peak.rate, 30.0 * scale)
    return Task(built.arrangement, seconds, scale, built.errors)


def _line(axes: "object", rates: list[float], trials: Sequence[Trial], name: str, one: SearchResult) -> None:
    tail, middle = ([1000 * getattr(trial, name)[index] for trial in trials] for index in (1, 0))
    (line,) = axes.plot(rates, tail, marker="o", markersize=3, label=one.candidate.layout.title)  # type: ignore[attr-defined]
    axes.plot(rates, middle, linestyle="--", linewidth=0.8, color=line.get_color())  # type: ignore[attr-defined]
