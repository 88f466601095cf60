"""Options of commands that name files to read.

Tests: tests/cli/test_files.py
"""

from collections.abc import Callable
from typing import IO, Any, Final, TypeVar

import click

RESOURCES: Final = "File with our resources; - reads standard input."

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def files_option(text: str = f"{RESOURCES} Repeatable.", *, required: bool = True) -> Callable[[CommandT], CommandT]:
    """Add the repeatable option -f. The command gets the open files as `sources`."""
    return click.option("-f", "--file", "sources", type=_kind(), required=required, multiple=True, help=text)


def file_option(
    text: str = RESOURCES, *, required: bool = True, names: tuple[str, ...] = ("-f", "--file", "source")
) -> Callable[[CommandT], CommandT]:
    """Add an option for one file. The command gets the open file, or None without one.

    Args:
        text: Its help.
        required: Whether the command needs it.
        names: Its names, and the name of the command's argument if that is another one.
    """
    # Not `multiple`, click would silently take the last of several files.
    return click.option(*names, type=_kind(), required=required, multiple=True, callback=_only, help=text)


def _kind() -> click.File:
    return click.File(encoding="utf-8")


def _only(_context: click.Context, _option: click.Parameter, files: tuple[IO[str], ...]) -> IO[str] | None:
    if len(files) > 1:
        raise click.BadParameter(f"this command takes one file, not {len(files)}.")
    return files[0] if files else None
