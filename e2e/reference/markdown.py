"""Markdown of generated pages."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

NOTE: Final = "<!-- Made by `make generate`. Edit the code, not this page. -->"
BAR: Final = "\\|"
_CODE: Final = re.compile(r"(`[^`]*`)")
_SPECIAL: Final = re.compile(r"([*<])")


def page(title: str, introduction: str, sections: Iterable[str]) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", NOTE, introduction, *sections]) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Cells are Markdown."""
    return "\n".join(map(_row, (header, ["---"] * len(header), *rows)))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def code(text: str) -> str:
    """Text as it is written in a file or a command."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def plain(text: str) -> str:
    """Text for people on one line. Between backticks it is code; elsewhere it has no markup."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)
