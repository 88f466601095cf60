"""The documentation site: Sphinx with the settings in docs/site/conf.py.

    uv run python -m e2e.site     # or `make docs`; into build/site/html/
    uv run python -m e2e.site --versions FOLDER     # also into FOLDER/<version>/, beside other versions

A warning is an error, so a link or anchor that does not exist fails. The site loads nothing from other hosts. Mermaid,
which renders the drawings, is downloaded once and kept; after that a build needs no network. Without it, pages have the
source of the drawings.
"""

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import click
import httpx

from e2e import images
from e2e.version import VERSION_NUMBER

FOLDER: Final = images.REPOSITORY / "build" / "site"
PAGES: Final = FOLDER / "html"
SETTINGS: Final = images.REPOSITORY / "docs" / "site"
_MERMAID: Final = "12.3.0"
_MERMAID_URL: Final = f"https://registry.npmjs.org/mermaid/-/mermaid-{_MERMAID}.tgz"
_MERMAID_SHA256: Final = "be0684e8d20bfc874df12c0f04927a5c482f57f2200eec54cca52a4583fd4040"
_MERMAID_FILE: Final = "package/dist/mermaid.min.js"
_CACHE: Final = Path.home() / ".cache" / "pdinference" / f"mermaid-{_MERMAID}.min.js"


class SiteError(Exception):
    """The site was not built; the message says why."""


class MermaidError(Exception):
    """Mermaid is not there; the message says why."""


def build(pages: Path = PAGES) -> None:
    """Write all pages, without Mermaid.

    Args:
        pages: Folder for the pages.

    Raises:
        SiteError: Sphinx is not installed, or warned.
    """
    command = [
        *(sys.executable, "-m", "sphinx", "--builder", "html", "--conf-dir", str(SETTINGS)),
        *("--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto"),
        *("--doctree-dir", str(pages.parent / "doctrees"), str(images.REPOSITORY), str(pages)),
    ]
    if subprocess.run(command, check=False).returncode != 0:
        raise SiteError("The site was not built. Correct what is listed above.")


def mermaid() -> Path:
    """Mermaid's script, from this machine if it was downloaded before.

    Raises:
        MermaidError: The download failed, or is not the file that is expected.
    """
    if not _CACHE.exists():
        content = _downloaded()
        _CACHE.parent.mkdir(parents=True, exist_ok=True)
        partial = _CACHE.with_suffix(".partial")
        partial.write_bytes(content)
        partial.rename(_CACHE)
    return _CACHE


def _downloaded() -> bytes:
    """Mermaid's script, from its package in the registry of npm."""
    try:
        package = httpx.get(_MERMAID_URL, timeout=120).raise_for_status().content
    except httpx.HTTPError as error:
        raise MermaidError(f"Mermaid was not downloaded from {_MERMAID_URL}: {error}") from error
    found = hashlib.sha256(package).hexdigest()
    if found != _MERMAID_SHA256:
        raise MermaidError(f"{_MERMAID_URL} has SHA-256 {found}, not {_MERMAID_SHA256}.")
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        script = archive.extractfile(_MERMAID_FILE)
        if script is None:
            raise MermaidError(f"{_MERMAID_URL} has no {_MERMAID_FILE}.")
        return script.read()


def add_mermaid(pages: Path) -> None:
    """Let pages show drawings. Without Mermaid, warn: static/drawings.js then leaves their source in place."""
    target = pages / "_static" / "mermaid.min.js"
    try:
        shutil.copy(mermaid(), target)
    except MermaidError as error:
        target.unlink(missing_ok=True)
        click.echo(f"Warning: {error}\nThe pages have the source of the drawings instead.", err=True)


def add_version(pages: Path, folder: Path, name: str) -> None:
    """Put a site beside those of other versions. Its pages then have a menu of versions (static/versions.js).

    Args:
        pages: The site.
        folder: Has a site for each version, and opens the latest one.
        name: The version. A site of the same version is replaced.
    """
    own = folder / name
    if own.exists():
        shutil.rmtree(own)
    shutil.copytree(pages, own)
    found = [each.name for each in folder.iterdir() if re.fullmatch(VERSION_NUMBER, each.name)]
    names = sorted(found, key=lambda each: [int(number) for number in each.split(".")], reverse=True)
    (folder / "versions.json").write_text(json.dumps(names) + "\n", encoding="utf-8")
    opens = (SETTINGS / "root" / "index.html").read_text(encoding="utf-8").replace("docs/", f"{names[0]}/docs/")
    (folder / "index.html").write_text(opens, encoding="utf-8")


@click.command()
@click.option(
    "--versions", type=click.Path(path_type=Path, file_okay=False), help="Folder with a site for each version."
)
def main(versions: Path | None) -> None:
    """Build the site, and say where it is."""
    try:
        build()
    except SiteError as error:
        raise SystemExit(f"Error: {error}") from error
    add_mermaid(PAGES)
    if versions is not None:
        add_version(PAGES, versions, images.project_version())
        click.echo(f"{versions}/index.html")
    click.echo(f"{PAGES.relative_to(images.REPOSITORY)}/index.html")


if __name__ == "__main__":
    main()
