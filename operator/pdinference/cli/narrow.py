"""Prints tables on narrow terminals."""

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
    if sum(_least(column) + between for column in table.columns) + 1 <= console.width:
        return table
    headers = [" ".join(str(column.header).split()) for column in table.columns[1:]]
    lines: list[RenderableType] = [Text(str(table.title))] if table.title else []
    cells = zip(*(map(str, column.cells) for column in table.columns), strict=True)
    for row, (name, *values) in zip(table.rows, cells, strict=True):
        style = row.style or ""
        said = (f"{header}: {value.strip()}" for header, value in zip(headers, values, strict=True) if value)
        lines += [Text(name, style=style), Padding(Text("; ".join(said), style=style), (0, 0, 0, 2))]
    return Group(*lines, Text())


def _least(column: Column) -> int:
    """Columns of the console that whole words take, or whole lines where none may wrap."""
    cells = (str(column.header), *map(str, column.cells))
    parts = [part for cell in cells for part in (cell.splitlines() if column.no_wrap else cell.split())]
    return max(column.min_width or 0, *map(cell_len, ("", *parts)))
