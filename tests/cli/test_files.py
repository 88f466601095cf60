"""The command line reports errors of all files with a message."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pdinference.cli import main
from tests.cli.hostile_files import FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["validate", "render", "plan"])
def test_a_file_with_anything_in_it_is_answered_in_words(name: str, command: str, tmp_path: Path) -> None:
    file = tmp_path / "resource.yaml"
    file.write_text(FILES[name])
    result = CliRunner().invoke(main, [command, "-f", str(file)])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert len(result.output) < 1500


def test_a_file_that_is_no_text_is_answered_in_words(tmp_path: Path) -> None:
    file = tmp_path / "resource.yaml"
    file.write_bytes(b"kind: \xff\xfe")
    result = CliRunner().invoke(main, ["validate", "-f", str(file)])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert "is not YAML" in result.output
