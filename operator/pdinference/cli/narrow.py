"""Prints tables on narrow terminals."""

from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text


def fitted(table: Table, console: Console) -> RenderableType:
    """A table, or its rows as some lines each if it does not fit the console: Rich would break and cut off its cells.

    Args:
        table: Its cells are texts, and the first one of a row is the row's name.
        console: Where it will be printed.
    """
    between = len(" | ") if table.box else len("  ")
    room = console.width - 1 - sum(_least(column) + between for column in table.columns)
    if room >= 0:
        _share(room, table.columns)
        return table
    headers = [" ".join(str(column.header).split()) for column in table.columns[1:]]
    lines: list[RenderableType] = [Text(str(table.title))] if table.title else []
    cells = zip(*(map(str, column.cells) for column in table.columns), strict=True)
    for row, (name, *values) in zip(table.rows, cells, strict=True):
        style = row.style or ""
        said = (f"{header}: {value.strip()}" for header, value in zip(headers, values, strict=True) if value)
        lines += [Text(name, style=style), Padding(Text("; ".join(said), style=style), (0, 0, 0, 2))]
    return Group(*lines, Text())


def _share(room: int, columns: Iterable[Column]) -> None:
    """Set widths: Rich takes from the widest columns alike, even below their least width, and cuts off the last one."""
    wrapping = [column for column in columns if not column.no_wrap]
    for column in sorted(wrapping, key=lambda column: _widest(column) - _least(column)):
        least = _least(column)
        column.width = min(least + room, max(least, _widest(column)))
        room -= column.width - least


def _widest(column: Column) -> int:
    """Columns of the console that no line has to wrap in."""
    cells = (str(column.header), *map(str, column.cells))
    return max(cell_len(line) for cell in cells for line in (cell.splitlines() or [""]))


def _least(column: Column) -> int:
    """Columns of the console that whole words take, or whole lines where none may wrap."""
    cells = (str(column.header), *map(str, column.cells))
    parts = [part for cell in cells for part in (cell.splitlines() if column.no_wrap else cell.split())]
    return max(column.min_width or 0, *map(cell_len, ("", *parts)))
