"""The page of the command line, from its parser."""

from collections.abc import Iterable, Iterator
from typing import Final

import click

from e2e.reference.markdown import code, page, plain, table
from pdinference.cli import main
from pdinference.cli.lazy_group import subcommands

_SENTENCE: Final = 400
"""Characters within which the first sentence of every help ends; click shortens longer ones."""


def command_page() -> str:
    """Every command with its arguments and options."""
    introduction = (
        "`make setup` installs `pdinference` into `.venv/bin`; the operator's image has it, too, but for `advise` and "
        "`calibrate`, which are in the package pdinference-advise. The commands "
        "`run`, `router run`, `batch run`, `model fetch`, `model check` and `model inspect` are for the pods that the "
        "operator starts; the others are for people. `pdinference COMMAND --help` prints the same."
    )
    commands = sorted(_commands(main, "pdinference"))
    return page(
        "Commands", introduction, [_overview(commands), *(_section(path, command) for path, command in commands)]
    )


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, part in subcommands(command).items():
            yield from _commands(part, f"{path} {name}")
    else:
        yield path, command


def _overview(commands: Iterable[tuple[str, click.Command]]) -> str:
    """A table of all commands, each with the first sentence of its help."""
    rows = (
        (f"[{code(path.removeprefix('pdinference '))}](#{path.replace(' ', '-')})", plain(_first_sentence(command)))
        for path, command in commands
    )
    return table(("command", "does"), rows)


def _first_sentence(command: click.Command) -> str:
    return command.get_short_help_str(limit=_SENTENCE)


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path, help_option_names=main.context_settings["help_option_names"])
    usage = command.collect_usage_pieces(context)
    options = [
        record
        for parameter in command.params
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context))
    ]
    parts = [f"## `{path}`", _words(command.help or ""), f"    {path} {' '.join(usage)}"]
    if options:
        parts.append(table(("option", "meaning"), ((code(name), plain(text)) for name, text in options)))
    return "\n\n".join(parts)


def _words(text: str) -> str:
    """The help of a command. A paragraph that begins with a backspace, which click leaves as it is, becomes code."""
    paragraphs = []
    for paragraph in text.replace("\f", "").split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            lines = paragraph.replace("\b", "").strip("\n").splitlines()
            paragraphs.append("\n".join(f"    {line}" for line in lines))
        else:
            paragraphs.append(plain(paragraph))
    return "\n\n".join(paragraphs)
