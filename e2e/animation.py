"""Recordings of a terminal as an animated picture: SVG with CSS, which GitHub and browsers play without scripts.

A viewer without animations, or whose user wants none, shows the first frame.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType

WIDTH: Final = 100
"""Columns. The site and GitHub show so many in letters that can be read."""
_PICTURE: Final = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
text {{ font: {char_height}px monospace; white-space: pre }}
text.{unique_id}-title {{ font: bold 18px sans-serif }}
@@STYLES@@
@media (prefers-reduced-motion: reduce) {{ g {{ animation: none !important }} }}
</style>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
@@FRAMES@@
</g>
</svg>
"""
_FRAME: Final = "{styles}\0{backgrounds}{matrix}"
_UNNEEDED: Final = re.compile(r' clip-path="[^"]*"|<text[^>]*>\n</text>')
"""Texts end where their column ends, and Rich draws the ends of lines."""


@dataclass(frozen=True)
class Frame:
    """What a terminal shows for some time.

    Attributes:
        shown: What it shows.
        seconds: How long.
    """

    shown: RenderableType
    seconds: float


def save_animation(frames: Sequence[Frame], file: Path, title: str) -> None:
    """Draw frames one after the other, again and again.

    Args:
        frames: At least one.
        file: The SVG file.
        title: Title of the terminal.
    """
    ends = list(accumulate(frame.seconds for frame in frames))
    height = max(_lines(frame) for frame in frames)
    styles, pictures = [], []
    for number, (frame, end) in enumerate(zip(frames, ends, strict=True)):
        name = f"{file.stem}-{number}"
        own, picture = _console(frame, height).export_svg(unique_id=name, code_format=_FRAME).split("\0")
        styles += [own, _visible(name, end - frame.seconds, end, ends[-1])]
        pictures.append(f'<g class="{name}">{_UNNEEDED.sub("", picture)}</g>')
    whole = _console(frames[0], height).export_svg(title=title, unique_id=file.stem, code_format=_PICTURE)
    whole = whole.replace("@@STYLES@@", "\n".join(styles)).replace("@@FRAMES@@", "\n".join(pictures))
    file.write_text(whole, encoding="utf-8")


def _console(frame: Frame, height: int) -> Console:
    """A console that has printed a frame, with so many lines."""
    console = Console(record=True, width=WIDTH, file=StringIO(), highlight=False)
    console.print(frame.shown)
    console.print("\n" * (height - _lines(frame)), end="")
    return console


def _lines(frame: Frame) -> int:
    return len(Console(width=WIDTH, file=StringIO()).render_lines(frame.shown))


def _visible(name: str, start: float, end: float, whole: float) -> str:
    """The rules that show a frame from `start` to `end`, of so many seconds; the first one without animations, too."""
    still = "visible" if start == 0 else "hidden"
    shown, over = (f"{100 * at / whole:.3f}%" for at in (start, end))
    return (
        f".{name} {{ visibility: {still}; animation: {name} {whole:g}s step-end infinite }}\n"
        f"@keyframes {name} {{ 0% {{ visibility: hidden }} "
        f"{shown} {{ visibility: visible }} {over} {{ visibility: hidden }} }}"
    )
