"""The command line, as a person uses it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pdinference.cli import commands, main
from pdinference.cli.lazy_group import subcommands
from pdinference.cli.model import group
from tests.conftest import REPOSITORY

TINY = REPOSITORY / "examples/tiny-cpu.yaml"


def test_render_prints_every_child_as_yaml() -> None:
    result = CliRunner().invoke(main, ["render", "-f", str(TINY), "--router-image", "mine:1"])
    assert result.exit_code == 0
    kinds = [document["kind"] for document in yaml.safe_load_all(result.output)]
    assert {"StatefulSet", "Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"} <= set(kinds)
    assert "mine:1" in result.output


def test_render_passes_over_other_kinds_and_reads_standard_input() -> None:
    text = "kind: ConfigMap\n---\n" + TINY.read_text()
    result = CliRunner().invoke(main, ["render", "-n", "models", "-f", "-"], input=text)
    assert {d["metadata"]["namespace"] for d in yaml.safe_load_all(result.output)} == {"models"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML"),
        ("kind: Pod", "holds no resource of kind PDInference"),
        ("", "is empty"),
        ("kind: PDInference\nmetadata: {name: x}\nspec: {}", "spec.model: This field is required."),
        ("kind: PDInference\nmetadata: 3", "metadata: "),
        ("kind: PDInference", "without a name is not valid"),
    ],
)
def test_render_says_what_is_wrong_with_a_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["render", "-f", str(file)])
    assert result.exit_code == 1
    assert words in result.output
    assert "Traceback" not in result.output


CRDS = ["pdinferences.pdinference.io", "pdbatches.pdinference.io", "pdscalers.pdinference.io"]


@pytest.mark.parametrize("name", CRDS)
def test_crd_prints_the_file_in_the_repository(name: str) -> None:
    result = CliRunner().invoke(main, ["crd", name])
    assert result.output == (REPOSITORY / f"crds/{name}.yaml").read_text()


def test_crd_prints_all_of_them_and_names_them_when_there_is_no_such() -> None:
    found = [crd["metadata"]["name"] for crd in yaml.safe_load_all(CliRunner().invoke(main, ["crd"]).output)]
    assert found == CRDS
    result = CliRunner().invoke(main, ["crd", "pods"])
    assert result.exit_code == 1
    assert "pdbatches.pdinference.io" in result.output


def test_offline_commands_do_not_import_the_cluster() -> None:
    """`render` answers in under a second because it leaves Kopf and the Kubernetes client alone."""
    code = (
        "import sys, pdinference.cli.render; print([m for m in ('kopf', 'kubernetes', 'aiohttp') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_program_imports_no_command_to_list_them() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from pdinference.cli import main;"
        "CliRunner().invoke(main, ['--help'], catch_exceptions=False);"
        "print([m for m in ('pydantic', 'rich', 'aiohttp', 'yaml', 'pdinference_advise') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_list_has_the_first_sentence_of_each_command_s_help() -> None:
    for name, later in (*commands.OWN.items(), *group.OWN.items()):
        assert (name, later.summary.rstrip(".")) == (name, later.load().get_short_help_str(400).rstrip("."))
        assert later.load().name == name


def test_each_command_is_in_a_section_of_the_help_with_its_whole_summary() -> None:
    assert sorted(name for names in commands.SECTIONS.values() for name in names) == sorted(subcommands(main))
    text = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    said = " ".join(text.split())
    assert [title for title in commands.SECTIONS if f"\n{title}:\n" not in text] == []
    assert [later.summary for later in commands.OWN.values() if later.summary not in said] == []


def test_a_command_that_is_spelled_nearly_right_is_named() -> None:
    assert "No such command 'vaildate'. Did you mean validate?" in CliRunner().invoke(main, ["vaildate"]).stderr
    assert CliRunner().invoke(main, ["x"]).stderr.endswith("No such command 'x'.\n")


def test_validate_looks_at_every_resource_and_says_which_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    wrong = "kind: PDInference\nmetadata: {name: wrong}\nspec: {}"
    file.write_text(f"{wrong}\n---\n{TINY.read_text()}")
    result = CliRunner().invoke(main, ["validate", "-f", str(file)])
    assert result.exit_code == 1
    assert "PDInference wrong is not valid." in result.stderr
    assert result.stdout == f"{file}: PDInference tiny is valid.\n"


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("huggingFace: {repository: a/b}", "`pdinference plan --online -f -` reads its config.json from the hub."),
        ("path: /models/none", "`pdinference plan -f -` says what is missing."),
    ],
)
def test_validate_says_when_it_cannot_know_whether_the_model_fits(source: str, command: str) -> None:
    text = f"kind: PDInference\nmetadata: {{name: a}}\nspec: {{model: {{source: {{{source}}}}}}}"
    result = CliRunner().invoke(main, ["validate", "-f", "-"], input=text)
    assert result.stdout == (f"<stdin>: PDInference a is valid.\n  Whether its model fits was not checked: {command}\n")


def test_the_dashboard_is_that_of_the_chart_also_as_a_configmap() -> None:
    chart = (REPOSITORY / "charts/pdinference-operator/dashboards/pdinference.json").read_text(encoding="utf-8")
    assert CliRunner().invoke(main, ["dashboard"]).output == chart, "run `make generate`"
    configmap = yaml.safe_load(CliRunner().invoke(main, ["dashboard", "-o", "configmap", "-n", "grafana"]).output)
    assert configmap["data"] == {"pdinference.json": chart}
    assert configmap["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert configmap["metadata"]["namespace"] == "grafana"


def test_validate_as_json_has_the_problems_of_each_resource(tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    wrong = "kind: PDInference\nmetadata: {name: 2026-11-24}\nspec: {}"
    file.write_text(f"{wrong}\n---\n{TINY.read_text()}")
    result = CliRunner().invoke(main, ["validate", "-f", str(file), "-o", "json"])
    assert result.exit_code == 1
    refused, valid = json.loads(result.stdout)["items"]
    assert (refused["name"], refused["valid"]) == ("2026-11-24", False)
    assert "spec.model" in [problem["field"] for problem in refused["problems"]]
    assert (valid["name"], valid["valid"], valid["problems"]) == ("tiny", True, [])


def test_warnings_do_not_get_into_what_is_rendered() -> None:
    text = TINY.read_text().replace("dtype: float32", "trustRemoteCode: true")
    result = CliRunner().invoke(main, ["render", "-f", "-"], input=text)
    assert result.exit_code == 0
    assert "Warning: <stdin>: spec.model.trustRemoteCode" in result.stderr
    assert "Warning" not in result.stdout
