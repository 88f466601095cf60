"""Options with a form of their own."""

import click
import pytest
from click.testing import CliRunner

from pdinference.cli.commands import main


def ranges(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.FloatRange]]:
    """Each option of the program with a range of numbers, with the words before its value."""
    if isinstance(command, click.Group):
        return [one for name, sub in command.commands.items() for one in ranges(sub, (*path, name))]
    return [
        ((*path, parameter.opts[-1]), parameter.type)
        for parameter in command.params
        if isinstance(parameter.type, click.FloatRange) and "advise" not in path
    ]


@pytest.mark.parametrize(("words", "kind"), [pytest.param(*one, id=" ".join(one[0])) for one in ranges(main)])
def test_nan_is_in_no_range(words: tuple[str, ...], kind: click.FloatRange) -> None:
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
