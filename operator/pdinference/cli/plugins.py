"""Commands of other distributions, which join by the entry-point group `pdinference.commands`."""

from importlib.metadata import entry_points
from typing import Final, NoReturn

import click

GROUP: Final = "pdinference.commands"
_OF_ADVISE: Final = {
    "advise": "Predict whether to split a model into P and D on your GPUs, how, and what to expect.",
    "calibrate": "Measure how long steps of vLLM take on your device, so that predictions are about that device.",
}
"""Commands of `pdinference-advise`, each with the first sentence of its help."""


def add_plugins(program: click.Group) -> None:
    """Add the installed commands, and for those of `pdinference-advise` that are not, what to install."""
    for entry in entry_points(group=GROUP):
        program.add_command(entry.load(), entry.name)
    for name, purpose in _OF_ADVISE.items():
        if name not in program.commands:
            program.add_command(_not_installed(name, purpose))


def _not_installed(name: str, purpose: str) -> click.Command:
    @click.command(
        name,
        help=f"{purpose} (Not installed.)",
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def command(words: tuple[str, ...]) -> NoReturn:
        raise click.ClickException(
            f"`pdinference {name}` is a command of pdinference-advise, which is not installed. "
            "Install it with `pip install 'pdinference[advise]'`."
        )

    return command
