"""Commands of other distributions, which join by the entry-point group `pdinference.commands`."""

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final, NoReturn

from pdinference.cli.extras import NotInstalledError
from pdinference.cli.lazy_group import Later

if TYPE_CHECKING:
    import click

GROUP: Final = "pdinference.commands"
_OF_ADVISE: Final = {
    "advise": "Predict whether to split a model into P and D on your GPUs, how, and what to expect.",
    "calibrate": "Measure how long steps of vLLM take on your device, so that predictions are about that device.",
}
"""Commands of `pdinference-advise`, each with the first sentence of its help."""
_LONGEST_SUMMARY: Final = 400


def commands_of_others() -> dict[str, Later]:
    """The installed commands, and for those of `pdinference-advise` that are not, what to install."""
    return {
        **{name: Later(f"{purpose} (Not installed.)", _not_installed) for name, purpose in _OF_ADVISE.items()},
        **{entry.name: Later(_summary(entry), entry.load) for entry in entry_points(group=GROUP)},
    }


def _summary(entry: EntryPoint) -> str:
    if entry.name in _OF_ADVISE:
        return _OF_ADVISE[entry.name]
    command: click.Command = entry.load()
    return command.get_short_help_str(_LONGEST_SUMMARY)


def _not_installed() -> NoReturn:
    raise NotInstalledError("pdinference-advise", "pdinference[advise]")
