"""The wheels of a release, installed as a person does: without a clone, and without the packages of pods."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from e2e import programs, wheels
from e2e.cluster.commands import run
from pdinference.cli import main
from tests.conftest import REPOSITORY

TINY = str(REPOSITORY / "examples/tiny-cpu.yaml")
ON_A_HUB = "kind: PDInference\nmetadata: {name: a}\nspec: {model: {source: {huggingFace: {repository: a/b}}}}"
LOCKED = ("--frozen", "--no-default-groups", "--no-hashes", "--no-emit-workspace", "--all-extras")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return wheels.build(tmp_path_factory.mktemp("wheels"))


def installed(folder: Path, *files: Path) -> Path:
    """The programs of an environment with wheels; versions are those of the lock file, which uv has in its cache."""
    bounds = folder / "constraints.txt"
    bounds.write_text(run([programs.UV, "export", "--quiet", *LOCKED, f"--project={REPOSITORY}"]))
    environment = folder / "environment"
    run([programs.UV, "venv", "--quiet", "--python", sys.executable, environment])
    install: list[str | Path] = [programs.UV, "pip", "install", "--quiet", "--python", environment / "bin/python"]
    run([*install, "--constraint", bounds, *files], timeout=300)
    return environment / "bin"


@pytest.fixture(scope="module")
def bare(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the first wheel, without any extra."""
    return installed(tmp_path_factory.mktemp("bare"), built[0])


def ran(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    program, *rest = words
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [folder / program, *rest], input=stdin, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}


def test_no_package_of_an_extra_is_installed(bare: Path) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name for requirements in project["optional-dependencies"].values() for name in names(requirements)}
    code = "from importlib.metadata import distributions; print(*(each.name for each in distributions()))"
    found = {name.lower().replace("_", "-") for name in ran(bare, "python", "-c", code).stdout.split()}
    assert {"kopf", "uvloop", "huggingface-hub", "pdinference-advise"} <= extras
    assert names(project["dependencies"]) <= found
    assert found & extras == set()


@pytest.mark.parametrize("command", ["validate", "render", "plan"])
def test_a_command_prints_what_it_prints_in_a_clone(bare: Path, command: str) -> None:
    there, here = ran(bare, "pdinference", command, "-f", TINY), CliRunner().invoke(main, [command, "-f", TINY])
    assert (there.returncode, there.stdout) == (0, here.stdout)


def test_the_plugin_of_kubectl_and_its_completion_are_there(bare: Path) -> None:
    assert ran(bare, "kubectl-pdi", "--help").stdout.startswith("Usage: kubectl pdi [OPTIONS] COMMAND [ARGS]...")
    assert ran(bare, "kubectl_complete-pdi", "router", "").returncode == 0


def test_only_commands_of_pods_lack_packages(bare: Path) -> None:
    code = """
from pdinference.cli import commands, extras
from pdinference.cli.model import group
for name, later in (*commands.OWN.items(), *group.OWN.items()):
    try:
        later.load()
    except extras.NotInstalledError:
        print(name)
"""
    assert ran(bare, "python", "-c", code).stdout.split() == ["router", "run", "fetch"]


@pytest.mark.parametrize(
    ("words", "package", "remedy"),
    [
        ("pdinference router run --namespace a", "uvloop", "operator"),
        ("pdinference run", "pythonjsonlogger", "operator"),
        ("pdinference model fetch --folder x", "filelock", "hubs"),
        ("pdinference model inspect --hub huggingFace --repository a/b --revision main", "httpx2", "hubs"),
        ("pdinference plan --online -f -", "httpx2", "hubs"),
        ("kubectl-pdi advise --help", "pdinference-advise", "advise"),
    ],
)
def test_a_command_that_lacks_packages_says_what_to_install(bare: Path, words: str, package: str, remedy: str) -> None:
    said = ran(bare, *words.split(), stdin=ON_A_HUB)
    assert said.returncode == 1
    assert f" needs {package}, which is not installed: install pdinference[{remedy}]." in " ".join(said.stderr.split())
    assert "Traceback" not in said.stderr


def test_the_advice_is_installed_beside(built: list[Path], tmp_path: Path) -> None:
    said = ran(installed(tmp_path, *built), "pdinference", "advise", "--help")
    assert said.stdout.startswith("Usage: pdinference advise [OPTIONS]")
