"""The command line of the router."""

import pytest
from click.testing import CliRunner

from pdinference.cli import main
from pdinference.cli.router import _key_limits
from pdinference.router.keys import KeyLimits


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["--parameter=a:1", "--namespace=a"],
        ["--namespace=a", "--name=b"],
        ["--namespace=a", "--name=b", "--revision=c", "--decode=a:1"],
    ],
)
def test_pods_come_from_a_watch_or_from_addresses(line: list[str]) -> None:
    found = CliRunner().invoke(main, ["router", "run", *line])
    assert found.exit_code == 2
    assert "Set --namespace, --name and --revision, or --parameter and --decode." in found.output


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("a=60:4", KeyLimits(60, 4)),
        ("a=:4", KeyLimits(None, 4)),
        ("a=60:", KeyLimits(60, None)),
        ("a=::9", KeyLimits(None, None, 9)),
    ],
)
def test_limits_of_a_client(text: str, limits: KeyLimits) -> None:
    assert _key_limits(text) == ("a", limits)


@pytest.mark.parametrize("text", ["a", "=1:1", "a=1", "a=x:1", "a=0:1", "a=00:1", "a=-1:", "a=1:2:3:4"])
def test_a_malformed_limit_is_refused(text: str) -> None:
    found = CliRunner().invoke(
        main, ["router", "run", "--parameter=a:1", "--api-keys-folder=/", f"--api-key-limit={text}"]
    )
    assert found.exit_code == 2
    assert text in found.output
