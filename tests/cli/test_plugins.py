"""Commands of other distributions, and what is said where they are not installed."""

from importlib.metadata import EntryPoint

import click
import pytest
from click.testing import CliRunner

from pdinference.cli import plugins


def program(monkeypatch: pytest.MonkeyPatch, *installed: EntryPoint) -> click.Group:
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: installed if group == plugins.GROUP else ())
    group = click.Group("pdinference")
    plugins.add_plugins(group)
    return group


@pytest.mark.parametrize("words", [("advise",), ("advise", "--help"), ("calibrate", "fit", "raw.json", "-o", "x")])
def test_a_command_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(program(monkeypatch), words)
    assert result.exit_code == 1
    assert f"`pdinference {words[0]}` is a command of pdinference-advise, which is not installed." in result.output
    assert "pip install 'pdinference[advise]'" in result.output


def test_the_list_of_commands_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(program(monkeypatch), ["--help"])
    assert {"advise", "calibrate"} <= {line.split()[0] for line in result.output.splitlines() if line.startswith("  ")}


def test_an_installed_command_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("advise", "pdinference_advise.commands.advise.command:advise_command", plugins.GROUP)
    assert program(monkeypatch, entry).commands["advise"].callback is not None
    assert "--gpus" in CliRunner().invoke(program(monkeypatch, entry), ["advise", "--help"]).output
