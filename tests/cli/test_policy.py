"""The option `--policy`, as a person uses it."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pdinference.cli import main

RESOURCE = {
    "apiVersion": "pdinference.io/v1alpha1",
    "kind": "PDInference",
    "metadata": {"name": "llama"},
    "spec": {"model": {"source": {"hostPath": {"path": "/srv/models/llama"}}}},
}


def run(command: str, folder: Path, policy: str | None) -> tuple[int, str]:
    """The command on a resource that needs a folder of the node."""
    (folder / "llama.yaml").write_text(yaml.safe_dump(RESOURCE))
    options = ["-f", str(folder / "llama.yaml")]
    if policy is not None:
        (folder / "policy.yaml").write_text(policy)
        options += ["--policy", str(folder / "policy.yaml")]
    result = CliRunner().invoke(main, [command, *options])
    return result.exit_code, result.output


@pytest.mark.parametrize("command", ["render", "validate"])
def test_what_the_file_allows_is_accepted(tmp_path: Path, command: str) -> None:
    code, output = run(command, tmp_path, None)
    assert code == 1
    assert "allowedHostPaths" in output
    code, output = run(command, tmp_path, "allowedHostPaths: [{path: /srv/models}]")
    assert code == 0, output


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    code, output = run("validate", tmp_path, "")
    assert code == 1
    assert "allowedHostPaths" in output


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("a: [", "is not YAML"),
        ("a: 2020-13-45", "is not YAML"),
        ("a: !!int b", "is not YAML"),
        ("secrets: []\nsecrets: ['*']", "is not YAML: line 2, column 1: secrets is already on line 1. Keep one."),
        ("[" * 300 + "]" * 300, "nested deeper than 256 levels"),
        ("secrets: []\n---\nlabels: []", "has 2 documents. Write one policy."),
        ("[]", "all of it"),
        ("allowHostPaths: []", "Unknown field. A policy has allowedHostPaths, labels"),
        ("allowedHostPaths: [/srv]", "allowedHostPaths[0]: This must be of type object"),
        ("allowedHostPaths: [{path: srv}]", "absolute path"),
        ("allowedHostPaths: [{path: /srv}, {path: /srv/cache, readOnly: false}]", "create a symbolic link"),
        ("volumeTypes: [hostPath]", "volumeTypes[0]"),
        ("secrets: all", "secrets: This must be of type array"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_in_words(tmp_path: Path, policy: str, words: str) -> None:
    code, output = run("validate", tmp_path, policy)
    assert code == 2
    assert words in " ".join(output.split())
    assert "Traceback" not in output
