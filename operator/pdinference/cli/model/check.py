"""The command `pdinference model check`.

Tests: tests/models/test_fetch.py
"""

from pathlib import Path

import click

from pdinference.cli.option_types import FOLDER
from pdinference.models.errors import ModelError
from pdinference.models.manifest import check as check_manifest


@click.command()
@click.option("--folder", type=FOLDER, required=True, help="Folder of the model.")
def check(folder: Path) -> None:
    """Check that a folder has a complete download of `fetch`."""
    try:
        manifest = check_manifest(folder)
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{len(manifest.files)} files of commit {manifest.commit} are whole.")
