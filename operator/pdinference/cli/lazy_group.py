"""A group of commands that are imported when they are named, because most take long to import.

Tests: tests/cli/test_commands.py, tests/cli/test_kubectl.py
"""

import difflib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

from pdinference.cli.extras import NotInstalledError, of_extra

_OTHERS: Final = "Other commands"


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
        sections: Names of commands by title, in the order of the help. Commands of no section come last.
    """

    def __init__(
        self,
        *args: Any,
        own: Mapping[str, Later],
        others: Callable[[], Mapping[str, Later]] = dict,
        sections: Mapping[str, Sequence[str]] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._own = own
        self._others = others
        self._sections = sections

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; an error names the one that is spelled nearly so."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            near = difflib.get_close_matches(args[0], self._all(), n=1)
            ctx.fail(f"No such command {args[0]!r}.{f' Did you mean {near[0]}?' if near else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands by section, each with its whole summary."""
        left = dict(sorted(self._all().items()))
        rows = {title: [(name, left.pop(name).summary) for name in names if name in left]
                for title, names in self._sections.items()}  # fmt: skip
        rows[_OTHERS if rows else "Commands"] = [(name, found.summary) for name, found in left.items()]
        width = max(len(name) for name in self._all())
        for title, listed in rows.items():
            if listed:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), summary) for name, summary in listed])

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
