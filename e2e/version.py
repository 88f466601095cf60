"""Sets the version of a release in every file that names it.

    uv run python -m e2e.version 0.2.0     # or `make version V=0.2.0`, which writes the generated files anew, too

The images of router and model keep their tags (`router.image.tag`, `model.image.tag`): another tag restarts pods.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from e2e.images import REPOSITORY

_NUMBER: Final = r"\d+\.\d+\.\d+"
PLACES: Final[Mapping[str, str]] = {
    "pyproject.toml": r'^version = "',
    "uv.lock": r'^name = "pdinference"\nversion = "',
    "charts/pdinference-operator/Chart.yaml": r"^(version|appVersion): ",
    "examples/gitops/argocd/apps/operator.yaml": r"^ *targetRevision: ",
    "examples/gitops/argocd/fleet/operator.yaml": r"^ *targetRevision: ",
    "examples/gitops/flux/operator/release.yaml": r"^ *ref: {tag: ",
    "docs/quick-start.md": r"REGISTRY/[a-z-]+:|image\.tag=",
    "docs/releases.md": r"--version ",
}
"""Files of the repository, each with what is in front of the version there."""


class VersionError(Exception):
    """The version cannot be set; the message says why."""


def set_version(number: str, repository: Path = REPOSITORY) -> None:
    """Write a version into all places, or into none.

    Args:
        number: Three numbers: pip and Helm write what may follow them in different ways.
        repository: The files.

    Raises:
        VersionError: It is no such number, or a file has no place for it.
    """
    if not re.fullmatch(_NUMBER, number):
        raise VersionError(f"{number} is not a version such as 0.2.0: give three numbers.")
    texts = {
        repository / path: _with_version(path, (repository / path).read_text(encoding="utf-8"), before, number)
        for path, before in PLACES.items()
    }
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")


def _with_version(path: str, text: str, before: str, number: str) -> str:
    written, count = re.subn(rf"((?:{before})){_NUMBER}", rf"\g<1>{number}", text, flags=re.MULTILINE)
    if not count:
        raise VersionError(f"{path} has no version after `{before}`: correct PLACES in e2e/version.py.")
    return written


@click.command(help=__doc__)
@click.argument("number")
def main(number: str) -> None:
    """Command line."""
    try:
        set_version(number)
    except VersionError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
