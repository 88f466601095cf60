"""The files of a release that need no registry: the packed chart, a manifest for kubectl, CRDs, wheels, checksums.

    uv run python -m e2e.release     # or `make release-files`; into dist/release/

The version is that of pyproject.toml, and the chart has to have the same (`make version`).
"""

import hashlib
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import yaml

from e2e import images, programs, wheels
from e2e.cluster import build
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError

FOLDER: Final = images.REPOSITORY / "dist" / "release"
CHART: Final = images.REPOSITORY / "charts" / "pdinference-operator"
REGISTRY: Final = "ghcr.io/pdinference"
"""Where the chart of this repository takes the operator's image from."""
RELEASE: Final = "pdinference"
NAMESPACE: Final = "pdinference-system"
CHECKSUMS: Final = "SHA256SUMS"
_INSTALL: Final = f"""\
# pdinference {{version}} with the chart's default values. Install or upgrade:
#   kubectl apply --server-side -f install.yaml
# For other values, or to have Helm manage the installation, use the chart.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
"""


class ReleaseError(Exception):
    """What a release consists of is not complete; the message says what is missing."""


def version(repository: Path = images.REPOSITORY) -> str:
    """The version of the release.

    Args:
        repository: The folder with pyproject.toml and charts/.

    Raises:
        ReleaseError: The chart has another version than pyproject.toml.
    """
    project = images.project_version(repository)
    chart = yaml.safe_load((repository / "charts" / CHART.name / "Chart.yaml").read_text(encoding="utf-8"))
    wrong = [f"{name} is {chart[name]}" for name in ("version", "appVersion") if chart[name] != project]
    if wrong:
        raise ReleaseError(
            f"The version in pyproject.toml is {project}, but in Chart.yaml {' and '.join(wrong)}. "
            f"Run: make version V={project}"
        )
    return project


def write_all(folder: Path, registry: str = REGISTRY) -> list[Path]:
    """Write all files of the release anew, except for the wheels and the checksums.

    Args:
        folder: Removed first if it exists.
        registry: Where the chart takes the operator's image from.

    Raises:
        ReleaseError: The repository has no single version.
        ClusterError: Helm failed.
    """
    number = version()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with TemporaryDirectory() as temporary:
        chart = _chart_of(registry, Path(temporary))
        run([build.binary("helm"), "package", chart, "--destination", folder])
        (folder / "install.yaml").write_text(_install_manifest(number, chart), encoding="utf-8")
    crds = sorted((images.REPOSITORY / "crds").glob("*.yaml"))
    (folder / "crds.yaml").write_text("".join(crd.read_text(encoding="utf-8") for crd in crds), encoding="utf-8")
    return sorted(folder.iterdir())


def chart_images(chart: Path) -> list[str]:
    """The images that an installation of a chart with its default values runs: operator, router and model."""
    helm: list[str | Path] = [build.binary("helm"), "template", RELEASE, chart, "--set=crds.install=false"]
    objects = run([*helm, f"--kube-version={build.OLDEST}.0"])
    return sorted(set(re.findall(r"(?:\bimage: |--[a-z]+-image=)\"?([^\s\"]+)", objects)))


def write_checksums(folder: Path) -> Path:
    """Write a line for each file of a folder, as `sha256sum --check` reads it."""
    files = sorted(file for file in folder.iterdir() if file.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
    return folder / CHECKSUMS


def notes(number: str, changelog: str) -> str:
    """What the changelog says of a version.

    Raises:
        ReleaseError: It has no section for this version.
    """
    section = re.search(rf"^## {re.escape(number)}(?!\S).*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    if section is None:
        raise ReleaseError(
            f"CHANGELOG.md has no section for {number}. Rename its section Unreleased to `{number} - DATE`."
        )
    return section[1].strip() + "\n"


def _chart_of(registry: str, folder: Path) -> Path:
    """A copy of the chart that takes the operator's image from a registry."""
    copy = shutil.copytree(CHART, folder / CHART.name)
    values = copy / "values.yaml"
    text = values.read_text(encoding="utf-8")
    values.write_text(text.replace(f"repository: {REGISTRY}/", f"repository: {registry}/"), encoding="utf-8")
    return copy


def _install_manifest(number: str, chart: Path) -> str:
    """The chart's objects with its default values, as for the oldest Kubernetes, after their namespace."""
    helm: list[str | Path] = [build.binary("helm"), "template", RELEASE, chart, "--skip-tests"]
    objects = run([*helm, f"--namespace={NAMESPACE}", f"--kube-version={build.OLDEST}.0"])
    return _INSTALL.format(version=number) + objects


@click.command(help=__doc__)
def main() -> None:
    """Command line."""
    programs.restrict()
    try:
        build.prepare(["helm"])
        for file in [*write_all(FOLDER), *wheels.build(FOLDER), write_checksums(FOLDER)]:
            click.echo(file.relative_to(images.REPOSITORY))
    except (ReleaseError, ClusterError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
