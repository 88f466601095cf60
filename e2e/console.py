"""What a person sees while things happen."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

console = Console(highlight=False, soft_wrap=True)
_START = time.monotonic()
_PICTURE_WIDTH: Final = 118
"""Columns of the picture of a run; longer lines are cut off."""
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def say(text: str) -> None:
    """Print a line with the time since the start."""
    console.print(f"[dim]{time.monotonic() - _START:5.0f} s[/dim]  {escape(text)}")


def headline(text: str) -> None:
    """Announce a stage."""
    console.print(f"\n[bold]{text}[/bold]")


@contextmanager
def recorded(file: Path | None, title: str) -> Iterator[None]:
    """Also draw what is printed. After a failure the file is as it was.

    Args:
        file: An SVG file; None for no picture.
        title: Title of the terminal in the picture.
    """
    if file is None:
        yield
        return
    width, console.width, console.record = console.width, _PICTURE_WIDTH, True
    try:
        yield
        save_picture(console, file, title)
    finally:
        console.export_text(clear=True)  # what is left after a failure
        console.width, console.record = width, False


def save_picture(drawn: Console, file: Path, title: str) -> None:
    """Draw what a console has recorded, as a terminal in an SVG file.

    Rich's picture loads a font from another host. The site must not, and GitHub does not: any monospaced font will do.

    Args:
        drawn: A console that records.
        file: The SVG file.
        title: Title of the terminal in the picture.
    """
    picture = _FONT.sub("", drawn.export_svg(title=title, unique_id=file.stem))
    file.write_text(picture, encoding="utf-8")
