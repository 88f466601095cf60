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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n\tc: 2\n", "is not YAML: line 3 is indented with a tab. Indent it with spaces."),
        ("a: 1\nb: c: d\n", "is not YAML: line 2, column 5: mapping values are not allowed in this context."),
        ("a: 1\nb: {c: 1, d: 2, c: 3}\n", "is not YAML: line 2, column 17: c is already on line 2. Keep one."),
        ("a: &a {c: 1, c: 2}\nb: *a\n", "is not YAML: line 1, column 14: c is already on line 1. Keep one."),
        ("# nothing\n---\n", "is empty. For a command line of vLLM"),
        ("kind: PDinference", "capital letters count, so write kind: PDInference."),
        ("kind: Deployment\n---\nkind: Service", "of kind PDInference, but Deployment, Service. For a command line"),
        ("kind: PDBatch", "of kind PDInference. It has PDBatch, for `pdinference validate`."),
        ("vllm serve a/b", "each document needs `kind:`. For a command line of vLLM"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line_and_remedy(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "resource.yaml"
    file.write_text(text)
    assert message in CliRunner().invoke(main, ["render", "-f", str(file)]).output.replace("\n", " ")


def test_a_merged_object_may_replace_members(tmp_path: Path) -> None:
    file = tmp_path / "resource.yaml"
    file.write_text("""
apiVersion: pdinference.io/v1alpha1
kind: PDInference
metadata: {name: merged}
spec:
  model: {source: {path: /model}}
  parameter: &role {replicas: 1, seed: 1}
  decode: &decode {<<: *role, replicas: 2}
  rollout: {}
""")
    result = CliRunner().invoke(main, ["validate", "-f", str(file)])
    assert "PDInference merged is valid." in result.output


def test_several_files_and_the_items_of_a_list_are_all_checked(tmp_path: Path) -> None:
    one, listed = tmp_path / "one.yaml", tmp_path / "list.yaml"
    one.write_text("kind: PDInference\nmetadata: {name: a}\nspec: {model: {source: {path: /a}}}")
    listed.write_text(
        f"kind: List\nitems:\n- {one.read_text().replace('name: a', 'name: b').replace(chr(10), chr(10) + '  ')}"
    )
    result = CliRunner().invoke(main, ["validate", "-f", str(one), "-f", str(listed)])
    assert f"{one}: PDInference a is valid." in result.output
    assert f"{listed}: PDInference b is valid." in result.output
    rendered = CliRunner().invoke(main, ["render", "-f", str(one), "-f", str(listed)]).stdout
    assert "name: a-router" in rendered
    assert "name: b-router" in rendered


@pytest.mark.parametrize(
    "command", [["explain"], ["doctor"], ["convert"], ["advise", "--gpus", "8xH100"], ["calibrate", "measure"]]
)
def test_a_command_for_one_file_refuses_several(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "resource.yaml"
    file.write_text("kind: PDInference")
    result = CliRunner().invoke(main, [*command, "-f", str(file), "-f", str(file)])
    assert result.exit_code == 2
    assert "Invalid value for '-f' / '--file': this command takes one file, not 2." in result.output
