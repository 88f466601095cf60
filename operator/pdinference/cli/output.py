"""The option -o of commands, their JSON, and sentences for a terminal."""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def output_option(*others: str) -> Callable[[CommandT], CommandT]:
    """Add the option -o with the values text, json and those of the command. The command gets it as `output`."""
    return click.option(
        "-o", "--output", type=click.Choice(["text", "json", *others]), default="text", show_default=True
    )


def print_json(found: Any) -> None:
    """Print an answer for programs."""
    click.echo(json.dumps(found, indent=2, default=str))  # YAML has dates


def say(text: str, *, err: bool = False, indent: int = 0, **style: Any) -> None:
    """Print a sentence: on a terminal wrapped at words, elsewhere as one line.

    Args:
        text: The sentence.
        err: Whether it goes to standard error.
        indent: Columns before its further lines.
        style: Arguments of `click.style`.
    """
    stream = sys.stderr if err else sys.stdout
    click.secho(wrapped(text, indent=indent) if stream.isatty() else text, err=err, **style)


def wrap_error(error: click.ClickException, *, indent: int = 0) -> None:
    """Wrap the message of an error at words, if standard error is a terminal."""
    if sys.stderr.isatty():
        error.message = wrapped(error.message, before=len("Error: "), indent=indent)  # type: ignore[misc]


def wrapped(text: str, *, before: int = 0, indent: int = 0) -> str:
    """Text with its lines wrapped at words to the width of the terminal.

    Names of objects have hyphens, and are copied: no line ends at one, or within a word.

    Args:
        text: One or more lines.
        before: Columns that the first line already has.
        indent: Columns before further lines, beside those before the line itself.
    """
    width = terminal_width()

    def filled(line: str) -> str:
        further = len(line) - len(line.lstrip()) + indent
        return textwrap.fill(
            line, width, subsequent_indent=" " * further, break_long_words=False, break_on_hyphens=False
        )

    return "\n".join(map(filled, f"{'x' * before}{text}".split("\n")))[before:]


def terminal_width() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size().columns
