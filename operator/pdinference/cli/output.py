"""The option -o of commands, and their JSON."""

import json
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
