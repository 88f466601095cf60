"""Commands of other distributions, and what is said where they are not installed."""

from importlib.metadata import EntryPoint

import click
import pytest
from click.testing import CliRunner

from pdinference.cli import main, plugins
from pdinference.cli.lazy_group import LazyGroup, subcommands


def program(monkeypatch: pytest.MonkeyPatch, *installed: EntryPoint) -> click.Group:
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: installed if group == plugins.GROUP else ())
    return LazyGroup("pdinference", own={}, others=plugins.commands_of_others)


@pytest.mark.parametrize("words", [("advise",), ("advise", "--help"), ("calibrate", "fit", "raw.json", "-o", "x")])
def test_a_command_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(program(monkeypatch), words)
    assert result.exit_code == 1
    assert f"`pdinference {words[0]}` needs pdinference-advise, which is not installed" in result.output
    assert "install pdinference[advise]" in result.output


def test_the_list_of_commands_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(program(monkeypatch), ["--help"])
    assert {"advise", "calibrate"} <= {line.split()[0] for line in result.output.splitlines() if line.startswith("  ")}


def test_an_installed_command_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("advise", "pdinference_advise.commands.advise.command:advise_command", plugins.GROUP)
    assert "--gpus" in CliRunner().invoke(program(monkeypatch, entry), ["advise", "--help"]).output


def test_their_summaries_are_the_first_sentences_of_their_help() -> None:
    listed = {name: later.summary for name, later in plugins.commands_of_others().items()}
    loaded = {name: later.load().get_short_help_str(400) for name, later in plugins.commands_of_others().items()}
    assert listed == loaded


def test_a_command_of_yet_another_distribution_is_listed_with_its_own_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("other", "pdinference.cli.completion:completion_command", plugins.GROUP)
    group = program(monkeypatch, entry)
    assert "other" in subcommands(group)
    assert "Print a script that completes" in CliRunner().invoke(group, ["--help"]).output


def test_no_distribution_is_asked_for_a_command_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda **_: pytest.fail("asked"))
    assert CliRunner().invoke(main, ["completion", "--help"]).exit_code == 0
