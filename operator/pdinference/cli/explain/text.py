"""Prints an explanation as text and tables."""

from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pdinference.cli.explain.explanation import Explanation
from pdinference.cli.explain.facts import RoleCount
from pdinference.cli.explain.steps import Step

_NOTHING = "Nothing to do."


def print_explanation(found: Explanation, console: Console) -> None:
    """Print an explanation."""
    console.print(Text(f"{found.namespace}/{found.name}", style="bold"))
    console.print(_summary(found))
    if found.roles:
        console.print()
        console.print(_roles(found))
        console.print()
    for part in _plan(found):
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


def _plan(found: Explanation) -> Iterator[RenderableType]:
    yield Text("Next writes, in this order; those with one number at the same time:" if found.writes else _NOTHING)
    if found.writes:
        yield _steps(found.writes)
    if found.held_back:
        yield Text("\nHeld back:")
        yield _steps(found.held_back)
    for title, lines in (("Decides again:", found.look_again), ("Not known here:", found.unknown)):
        if lines:
            yield Text(f"\n{title}")
            yield from (Padding(Text(f"- {line}"), (0, 0, 0, 2)) for line in lines)


def _steps(steps: Iterable[Step]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for step in steps:
        number = str(step.order) if step.order else ""
        table.add_row(*map(Text, (f"  {number}", step.action, f"{step.kind} {step.name}", step.reason)))
    return table
