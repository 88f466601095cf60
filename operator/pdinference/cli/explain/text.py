"""Prints an explanation as text and tables.

Tests: tests/cli/test_explain.py, tests/cli/test_narrow.py
"""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pdinference.cli.explain.explanation import Explanation
from pdinference.cli.explain.facts import RoleCount
from pdinference.cli.explain.steps import Step

_NOTHING = "Nothing to do."
_BEFORE_OBJECT = len("  1  create    ")
_LEAST_REASON = 30
"""Columns of a reason beside its object."""


def print_explanation(found: Explanation, console: Console) -> None:
    """Print an explanation."""
    console.print(Text(f"{found.namespace}/{found.name}", style="bold"))
    console.print(_summary(found))
    if found.roles:
        console.print()
        console.print(_roles(found))
        console.print()
    for part in _plan(found, console.width):
        console.print(part)


def _summary(found: Explanation) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    behind = "" if found.handled == found.generation else f", the operator has handled {found.handled}"
    rows = {
        "generation": f"{found.generation}{behind}",
        "problem": found.problem,
        "target revision": found.target,
        "serving revision": found.serving or "none",
        "roll-out": "\n".join(found.rollout),
        "GPUs": found.gpus,
        "objectives": found.objectives,
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, Text(value))
    return table


def _roles(found: Explanation) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("ROLE")
    table.add_column("REVISION", no_wrap=True)
    for name in ("RECOMMENDED", "ALLOCATED", "PODS", "READY"):
        table.add_column(name, justify="right")
    table.add_column("LIMIT", overflow="fold")
    for row in found.roles:
        table.add_row(*map(Text, _cells(row)))
    return table


def _cells(row: RoleCount) -> Iterator[str]:
    recommended = "-" if row.recommended is None else str(row.recommended)
    yield from (row.role, row.revision or "-", f"{recommended} by {row.by}" if row.by else "-")
    yield from ("-" if row.allocated is None else str(row.allocated), str(row.replicas), str(row.ready), row.limit)


def _plan(found: Explanation, width: int) -> Iterator[RenderableType]:
    yield Text("Next writes, in this order; those with one number at the same time:" if found.writes else _NOTHING)
    if found.writes:
        yield _steps(found.writes, width)
    if found.held_back:
        yield Text("\nHeld back:")
        yield _steps(found.held_back, width)
    for title, lines in (("Decides again:", found.look_again), ("Not known here:", found.unknown)):
        if lines:
            yield Text(f"\n{title}")
            yield Padding(_listed(lines), (0, 0, 0, 2))


def _listed(lines: Iterable[str]) -> Table:
    """A list, whose further lines are indented as its first ones."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row("-", Text(line))
    return table


def _steps(steps: Sequence[Step], width: int) -> Table:
    """The steps; with long names on a narrow terminal each reason is below its object."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    objects = [f"{step.kind} {step.name}" for step in steps]
    beside = width - max(map(len, objects)) - _BEFORE_OBJECT >= _LEAST_REASON
    table.add_column(no_wrap=beside, overflow="fold")
    if beside:
        table.add_column(overflow="fold")
    for step, changed in zip(steps, objects, strict=True):
        number = str(step.order) if step.order else ""
        last = (changed, step.reason) if beside else (f"{changed}\n{step.reason}".rstrip(),)
        table.add_row(*map(Text, (f"  {number}", step.action, *last)))
    return table
