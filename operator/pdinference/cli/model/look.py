"""The command `pdinference model look`.

Tests: tests/models/test_folder.py
"""

from pathlib import Path

import click

from pdinference.models.errors import ModelFilesError
from pdinference.models.folder import Expected, check_folder


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="Folder of the model.")
@click.option("--field", default="the path", help="Field to correct if it does not exist, for messages.")
@click.option("--load-format", default="auto", help="Load format of vLLM.")
@click.option("--config/--no-config", default=True, help="Whether the folder must contain the config.")
def look(*, folder: Path, field: str, load_format: str, config: bool) -> None:
    """Check whether vLLM can load the model in a folder, by headers and sizes only."""
    try:
        count = check_folder(folder, Expected(field, load_format.lower(), config))
    except ModelFilesError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"Nothing is wrong with {folder}; {count} files with weights were looked at.")
