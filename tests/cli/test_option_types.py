"""Options with a form of their own."""

import click
import pytest
from click.testing import CliRunner

from pdinference.cli.commands import main
from pdinference.cli.lazy_group import subcommands


def numbers(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words before each number with a fraction that an option takes."""
    if isinstance(command, click.Group):
        return [words for name, sub in subcommands(command).items() for words in numbers(sub, (*path, name))]
    options = [one for one in command.params if isinstance(one.type, click.types.FloatParamType)]
    return [(*path, option.opts[-1]) for option in options]


@pytest.mark.parametrize("words", numbers(main), ids=" ".join)
def test_nan_is_in_no_range(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "nan"])
    assert (result.exit_code, type(result.exception)) == (2, SystemExit)
    assert f"Invalid value for '{words[-1]}': nan is not a number." in result.output


@pytest.mark.parametrize("value", ["models", "models/", "/answers", "a/b/c"])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "--metrics-service"),
        ("batch", "run", "--input=a", "--url=http://a", "--output-config-map"),
        ("model", "inspect", "--job"),
    ],
    ids=lambda words: words[-1],
)
def test_a_name_in_a_namespace_has_both_parts(words: tuple[str, ...], value: str) -> None:
    result = CliRunner().invoke(main, [*words, value])
    assert (result.exit_code, type(result.exception)) == (2, SystemExit), "no run of the command"
    assert "NAMESPACE/NAME" in result.output
