"""The chart of this repository: its version, its metadata, and what an installation of it consists of."""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from e2e import images
from e2e.cluster import build
from e2e.cluster.commands import run

CHART: Final = images.REPOSITORY / "charts" / "pdinference-operator"
METADATA: Final = "Chart.yaml"
REGISTRY: Final = "ghcr.io/pdinference"
"""Where the chart of this repository takes the operator's image from."""
RELEASE: Final = "pdinference"
NAMESPACE: Final = "pdinference-system"


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
    chart = metadata(repository)
    wrong = [f"{name} is {chart[name]}" for name in ("version", "appVersion") if chart[name] != project]
    if wrong:
        raise ReleaseError(
            f"The version in pyproject.toml is {project}, but in Chart.yaml {' and '.join(wrong)}. "
            f"Run: make version V={project}"
        )
    return project


def metadata(repository: Path = images.REPOSITORY) -> dict[str, Any]:
    """The Chart.yaml below a folder that has charts/."""
    return dict(yaml.safe_load((repository / "charts" / CHART.name / METADATA).read_text(encoding="utf-8")))


def rendered(chart: Path, *options: str, values: str = "") -> str:
    """The objects of an installation, as for the oldest Kubernetes, without those of `helm test`.

    Args:
        chart: The chart.
        options: Further ones of Helm.
        values: As JSON; the default ones without it.

    Raises:
        ClusterError: Helm failed.
    """
    helm: list[str | Path] = [build.binary("helm"), "template", RELEASE, chart, "--skip-tests", "--values=-"]
    return run([*helm, f"--namespace={NAMESPACE}", f"--kube-version={build.OLDEST}.0", *options], stdin=values)


def containers(chart: Path) -> list[str]:
    """The images that an installation of a chart with its default values runs: operator, router and model."""
    objects = rendered(chart, "--set=crds.install=false")
    return sorted(set(re.findall(r"(?:\bimage: |--[a-z]+-image=)\"?([^\s\"]+)", objects)))
