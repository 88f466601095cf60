"""`pdinference convert`, as a person uses it, and with untrusted files."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from pdinference.api.bounds import MAX_RAW_SPEC_BYTES
from pdinference.cli import main
from tests.cli.hostile_files import FILES

SERVE = "vllm serve a/b --dtype half --host 0.0.0.0"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.32.0
          args: [--model, a/b, --max-model-len, "4096"]
"""


def convert(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["convert", *arguments], input=text)


def test_the_words_after_two_dashes_are_a_command_line() -> None:
    result = convert("--name", "mine", "--", *SERVE.split(), "--chat-template", "{{ messages }}\n# $A")
    assert result.exit_code == 0, result.output
    document = yaml.safe_load(result.stdout)
    assert document["metadata"] == {"name": "mine"}
    assert document["spec"]["model"]["chatTemplate"]["inline"] == "{{ messages }}\n# $A"
    assert "# - --host 0.0.0.0: Pods listen" in result.stdout


@pytest.mark.parametrize(("text", "name"), [(SERVE, "b"), (DEPLOYMENT, "chat")])
def test_standard_input_is_read_by_what_it_holds(text: str, name: str) -> None:
    result = convert("-f", "-", text=text)
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == name


def test_a_manifest_in_json_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "manifest"
    file.write_text(str(yaml.safe_load(DEPLOYMENT)).replace("'", '"'))
    assert yaml.safe_load(convert("-f", str(file)).stdout)["metadata"]["name"] == "chat"


def test_what_it_prints_passes_validate() -> None:
    printed = convert("-f", "-", text=SERVE).stdout
    result = CliRunner().invoke(main, ["validate", "-f", "-"], input=printed)
    assert result.stdout.startswith("<stdin>: PDInference b is valid.\n")
    assert "P is not pinned to a product" in result.stderr, "a command line names no product"


@pytest.mark.parametrize(("model", "option"), [("a/b", "--online"), ("/models/b", "--model-dir DIR")])
def test_the_head_names_a_plan_that_can_be_made(model: str, option: str) -> None:
    printed = convert("--", "vllm", "serve", model).stdout
    assert f"pdinference plan {option} -f FILE" in printed
    assert "`pdinference plan -f FILE`" not in printed


def test_two_files_are_p_and_d(tmp_path: Path) -> None:
    (tmp_path / "p.sh").write_text("vllm serve a/b --max-num-seqs 8")
    (tmp_path / "d.sh").write_text("vllm serve a/b --max-num-seqs 64")
    result = convert("--parameter", str(tmp_path / "p.sh"), "--decode", str(tmp_path / "d.sh"))
    spec = yaml.safe_load(result.stdout)["spec"]
    assert (spec["parameter"], spec["decode"]) == ({"maxNumSeqs": 8}, {"maxNumSeqs": 64})


@pytest.mark.parametrize(
    ("arguments", "text", "words"),
    [
        ([], None, "Give one of"),
        (["--parameter", "-"], SERVE, "Give one of"),
        (["-f", "-", "--", "vllm", "serve", "a/b"], SERVE, "Give one of"),
        (["--", "echo", "hello"], None, "Nothing here starts vLLM"),
        (["-f", "-"], "vllm serve --dtype half", "It names no model"),
        (["-f", "-"], "vllm serve 'a/b", "Line 1"),
        (["-f", "-"], "kind: Deployment\napiVersion: apps/v1", "Nothing here starts vLLM"),
        (["-f", "-"], "x" * (MAX_RAW_SPEC_BYTES + 1), "more than"),
    ],
)
def test_without_a_resource_it_says_why_and_fails(arguments: list[str], text: str | None, words: str) -> None:
    result = convert(*arguments, text=text)
    assert result.exit_code != 0
    assert words in result.stderr
    assert result.stdout == ""


def test_what_validate_would_refuse_is_printed_and_fails() -> None:
    result = convert("-f", "-", text="vllm serve a/b --max-num-seqs 0 --seed -1")
    assert result.exit_code == 1
    assert yaml.safe_load(result.stdout)["spec"]["engine"] == {"maxNumSeqs": 0, "seed": -1}
    assert "spec.engine.maxNumSeqs: " in result.stderr
    assert "spec.engine.seed: " in result.stderr


def test_no_remark_can_leave_its_comment() -> None:
    text = "vllm serve a/b --foo 'x\nkind: Pod\r\u2028metadata: {}'"
    result = convert("-f", "-", text=text)
    assert yaml.safe_load(result.stdout)["kind"] == "PDInference"
    assert "--foo x kind: Pod metadata: {}" in result.stdout


def test_very_many_remarks_are_cut() -> None:
    result = convert("-f", "-", text="vllm serve a/b " + " ".join(f"--x{number} y" for number in range(5000)))
    assert len(result.stdout) < 60_000
    assert "more." in result.stdout


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_anything_in_it_is_answered_in_words(name: str, tmp_path: Path) -> None:
    text = FILES[name].replace("pdinference.io/v1alpha1", "v1").replace("PDInference", "Pod")
    for file in (tmp_path / "resource.yaml", tmp_path / "script.sh"):
        file.write_text(text)
        result = convert("-f", str(file))
        assert isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code == 1
        assert result.output.startswith("Error: ")
        assert len(result.output) < 1500


def test_bytes_that_are_no_text_are_answered_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_bytes(b"vllm serve \xff")
    assert "not UTF-8 text" in convert("-f", str(tmp_path / "x.sh")).output


def test_as_json_it_has_the_resource_and_what_is_left_out() -> None:
    result = convert("-o", "json", "--", *SERVE.split())
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["resource"] == yaml.safe_load(convert("--", *SERVE.split()).stdout)
    assert [one["subject"] for one in found["leftOut"]] == ["--host 0.0.0.0"]
    assert found["problems"] == []
