"""Commands whose packages are not installed. tests/test_wheel.py has an installation without them."""

import sys

import pytest
from click.testing import CliRunner

from pdinference.cli import kubectl, main
from pdinference.cli.commands import OWN


@pytest.fixture
def without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.delitem(sys.modules, "pdinference.cli.router", raising=False)


@pytest.mark.usefixtures("without_uvloop")
@pytest.mark.parametrize("words", [["router"], ["router", "run", "--port", "1"], ["router", "--help"]])
def test_a_command_says_what_to_install(words: list[str]) -> None:
    result = CliRunner().invoke(main, words, prog_name="pdinference")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert said == "Error: `pdinference router` needs uvloop, which is not installed: install pdinference[operator]."


@pytest.mark.usefixtures("without_uvloop")
def test_a_shell_completes_lines_with_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-pdi", "router", ""])
    kubectl.kubectl_complete_pdi()
    assert capsys.readouterr().out == ":4\n"


def test_a_module_of_ours_that_is_missing_is_no_question_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pdinference.cli.router", None)
    with pytest.raises(ModuleNotFoundError, match=r"pdinference\.cli\.router"):
        OWN["router"].load()
