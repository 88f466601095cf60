"""Prints how long pods took to start.

Tests: tests/cli/test_status_startup.py
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pdinference.api.names import Role
from pdinference.cli.narrow import fitted
from pdinference.cli.status.startup import ORDER, RoleStarts, Start, advice, by_role
from pdinference.cli.status.startup_reading import Starts

_TITLES: Final = {Role.PARAMETER: "P", Role.DECODE: "D"}


def startup_json(read: Starts) -> dict[str, Any]:
    """For programs."""
    return {"starts": [start.as_json() for start in read.starts], "notes": list(read.notes)}


def startup_text(read: Starts, console: Console) -> RenderableType:
    """A table of the phases, what would shorten them, and what could not be read."""
    found = by_role(read.starts)
    if not found:
        return Group(Text("No pod of P or D has started yet."), *_notes(read))
    return Group(
        fitted(_table(found), console),
        Text("\n" + "\n".join(_last(role, one.last) for role, one in found.items())),
        *(Text(f"\n{sentence}") for sentence in advice(found, read.resource.get("spec") or {})),
        *_notes(read),
    )


def _notes(read: Starts) -> Iterator[Text]:
    for note in read.notes:
        yield Text(f"\nNote: {note}", style="yellow")


def _table(found: Mapping[Role, RoleStarts]) -> Table:
    """Rows are phases. A role with several starts has a column for their median."""
    table = Table(box=None, pad_edge=False)
    table.add_column("SECONDS", no_wrap=True)
    columns = [column for role, one in found.items() for column in _columns(role, one)]
    for title, _, _ in columns:
        table.add_column(title, justify="right")
    for phase in ORDER:
        if any(phase in seconds for _, seconds, _ in columns):
            table.add_row(Text(phase), *(Text(_shown(seconds.get(phase))) for _, seconds, _ in columns))
    totals = (Text(_shown(total) if total is not None else "not ready") for _, _, total in columns)
    table.add_row(Text("all", style="bold"), *totals)
    return table


def _columns(role: Role, one: RoleStarts) -> Iterator[tuple[str, Mapping[str, float], float | None]]:
    title = _TITLES[role]
    if one.count == 1:
        yield title, one.last.seconds, one.last.total
        return
    yield f"{title}, last", one.last.seconds, one.last.total
    yield f"{title}, median of {one.count}", one.typical, one.total


def _last(role: Role, start: Start) -> str:
    """Which start the column of a role is, and what is special in it."""
    found = [f"{_TITLES[role]}: pod {start.pod}"]
    found += [f"engine {start.engine}"] if start.engine else []
    found += ["its container was started again"] if start.again else []
    found += ["compiled code was found"] if start.from_cache else []
    return ", ".join(found)


def _shown(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"
