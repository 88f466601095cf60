"""Prints the use of engines with bars, and the KV cache over time: as a table, or in blocks if that is too wide.

Tests: tests/cli/test_top.py
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pdinference.api.names import Role
from pdinference.cli.top.usage import EngineUse, Tiers
from pdinference.memory.figures import GIB, MIB

_TITLES: Final = {Role.PARAMETER: "P", Role.DECODE: "D"}
_BAR: Final = 20
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_MEGA: Final = 1e6
_HIGH: Final = 0.9
_WIDEST: Final = 1000
_KEPT: Final = 30
"""Values of a curve."""

History = Mapping[str, Sequence[float]]
"""Shares of the KV cache in use at the latest looks, by engine."""
Remembered = dict[str, deque[float]]
"""The same, as it grows."""


def remember(history: Remembered, engines: Iterable[EngineUse]) -> None:
    """Add a look to the curves."""
    for one in engines:
        if one.kv_used is not None:
            history.setdefault(one.engine, deque(maxlen=_KEPT)).append(one.kv_used)


def view(console: Console, engines: Sequence[EngineUse], history: History) -> RenderableType:
    """The engines, in the form that fits the console."""
    found = table(engines, history)
    unbounded = console.options.update(max_width=_WIDEST)
    fits = Measurement.get(console, unbounded, found).maximum <= console.width
    return found if fits else blocks(engines, history)


def blocks(engines: Sequence[EngineUse], history: History) -> Table:
    """The engines, each in some short lines."""
    found = Table.grid(padding=(0, 2, 0, 0))
    for one in engines:
        found.add_row(Text(_TITLES[one.role]), Text(one.engine, overflow="fold"))
        for line in _lines(one, history.get(one.engine, ())):
            found.add_row("", line)
    return found


def _lines(one: EngineUse, values: Sequence[float]) -> Iterator[Text]:
    weights, bar, *counts = _cells(one)
    if one.problem:
        yield bar
        return
    yield Text.assemble("weights ", weights, ", KV cache ", bar)
    running, waiting, prompt, answer = counts
    yield Text.assemble(running, " running, ", waiting, " waiting")
    yield Text.assemble(prompt, " prompt tokens, ", answer, " answer tokens")
    if one.tiers is not None:
        cpu, disk = _tiers(one.tiers)
        yield Text.assemble("CPU tier ", cpu, "; disk tier ", disk)
    if values:
        yield Text(f"KV cache over time {curve(values)}")


def table(engines: Sequence[EngineUse], history: History) -> Table:
    """The engines, one in a row.

    Args:
        engines: Their use.
        history: Earlier values; a column of them is there if it has any.
    """
    tiers = any(one.tiers is not None for one in engines)
    found = Table(box=None, pad_edge=False)
    for column in ("ROLE", "ENGINE"):
        found.add_column(column, no_wrap=True)
    found.add_column("WEIGHTS", justify="right", no_wrap=True)
    found.add_column("KV CACHE IN USE", no_wrap=True)
    for column in ("RUNNING", "WAITING", "PROMPT TOKENS", "ANSWER TOKENS"):
        found.add_column(column, justify="right")
    if tiers:
        found.add_column("CPU TIER", justify="right")
        found.add_column("DISK TIER", justify="right")
    if history:
        found.add_column("KV CACHE OVER TIME", no_wrap=True)
    for one in engines:
        row = [Text(_TITLES[one.role]), Text(one.engine), *_cells(one)]
        row += _tiers(one.tiers) if tiers else []
        row += [Text(curve(history.get(one.engine, ())))] if history else []
        found.add_row(*row)
    return found


def curve(values: Sequence[float]) -> str:
    """Shares as a line of small bars."""
    return "".join(_LEVELS[min(len(_LEVELS) - 1, round(value * (len(_LEVELS) - 1)))] for value in values)


def _cells(one: EngineUse) -> list[Text]:
    if one.problem:
        return [Text("-"), Text(one.problem, style="yellow"), *[Text("-")] * 4]
    weights = _size(one.weights_bytes) if one.weights_bytes is not None else "-"
    counts = (one.running, one.waiting, one.prompt_tokens, one.answer_tokens)
    return [Text(weights), _bar(one), *(Text("-" if value is None else f"{value:,.0f}") for value in counts)]


def _bar(one: EngineUse) -> Text:
    if one.kv_used is None:
        return Text("-")
    filled = round(min(1.0, one.kv_used) * _BAR)
    text = Text("█" * filled, style="red" if one.kv_used >= _HIGH else "green")
    text.append("░" * (_BAR - filled), style="dim")
    if one.kv_bytes is not None:
        size = _size(one.kv_bytes, one.kv_used)
    else:
        size = f"of {one.kv_tokens:,} tokens" if one.kv_tokens is not None else ""
    text.append(f" {one.kv_used:4.0%} {size}".rstrip(), style="default")
    return text


def _size(whole: float, used: float | None = None) -> str:
    """A size in MiB or GiB, after the part of it that is in use if that is known."""
    unit, name, digits = (GIB, "GiB", 1) if whole >= GIB else (MIB, "MiB", 0)
    share = "" if used is None else f"{used * whole / unit:.{digits}f} of "
    return f"{share}{whole / unit:.{digits}f} {name}"


def _tiers(tiers: Tiers | None) -> list[Text]:
    """Bytes written to and read from each tier."""
    if tiers is None:
        return [Text("-"), Text("-")]
    pairs = ((tiers.cpu_written, tiers.cpu_read), (tiers.disk_written, tiers.disk_read))
    return [Text(f"{written / _MEGA:,.0f} MB in, {read / _MEGA:,.0f} out") for written, read in pairs]
