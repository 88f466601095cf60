"""Values of options with a form of their own."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
FOLDER = click.Path(path_type=Path, file_okay=False)


class NumberRange(click.FloatRange):
    """Numbers within limits. click's own range has NaN in it, because it is neither below nor above a limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


def object_option(name: str, text: str) -> Callable[[CommandT], CommandT]:
    """Add an option for an object of the cluster. The command gets its namespace and name, or None without it."""
    return click.option(name, metavar="NAMESPACE/NAME", callback=_parts, help=text)


def _parts(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, str] | None:
    if value is None:
        return None
    namespace, _, name = value.partition("/")
    if not (namespace and name) or "/" in name:
        raise click.BadParameter("write NAMESPACE/NAME")
    return namespace, name
