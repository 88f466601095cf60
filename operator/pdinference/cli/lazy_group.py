"""A group of commands that are imported when they are named, because most take long to import.

Tests: tests/cli/test_commands.py, tests/cli/test_kubectl.py
"""

import pkgutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from pdinference.cli.extras import NotInstalledError, of_extra


@dataclass(frozen=True)
class Later:
    """A command that is not imported yet.

    Attributes:
        summary: The first sentence of its help, for lists of commands.
        load: Imports it. Raises NotInstalledError without the packages that it needs.
    """

    summary: str
    load: Callable[[], click.Command]


def later(place: str, summary: str, *, extra: str = "") -> Later:
    """A command of this package.

    Args:
        place: Its module in `pdinference.cli` and its name: `module:name`.
        summary: The first sentence of its help.
        extra: The extra of the distribution whose packages it needs. Default: none.
    """

    def load() -> click.Command:
        with of_extra(extra) if extra else nullcontext():
            command: click.Command = pkgutil.resolve_name(f"pdinference.cli.{place}")
        return command

    return Later(summary, load)


class LazyGroup(click.Group):
    """Lists its commands without an import of them.

    Args:
        own: The commands, by name.
        others: Returns the commands of other distributions. Called only for a list, and for a name that `own` lacks.
    """

    def __init__(
        self, *args: Any, own: Mapping[str, Later], others: Callable[[], Mapping[str, Later]] = dict, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._own = own
        self._others = others

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(self._all())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, imported; None if there is none. Without its packages it says what to install."""
        found = self._own.get(cmd_name) or self._others().get(cmd_name)
        if found is None:
            return None
        try:
            return found.load()
        except NotInstalledError as error:
            return _substitute(cmd_name, found.summary, error)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, as click does."""
        click.Group(commands=self._summaries()).format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and options that begin so."""
        commands = [
            CompletionItem(name, help=command.get_short_help_str())
            for name, command in self._summaries().items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def _all(self) -> dict[str, Later]:
        return {**self._others(), **self._own}

    def _summaries(self) -> dict[str, click.Command]:
        return {name: click.Command(name, help=found.summary) for name, found in sorted(self._all().items())}


def _substitute(name: str, summary: str, error: NotInstalledError) -> click.Command:
    @click.command(name, help=summary, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def command(words: tuple[str, ...]) -> NoReturn:
        raise NotInstalledError(error.package, error.remedy)

    return command


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """All commands of a group, imported."""
    context = click.Context(group)
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return {name: command for name, command in found if command is not None}
