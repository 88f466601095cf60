"""The command `pdinference model fetch`.

Tests: tests/models/test_fetch.py
"""

from pathlib import Path

import click

from pdinference.cli.model.facts import adapter_facts, adapters_option, job_option, repository_options, with_progress
from pdinference.cli.model.hubs import Where, source_of
from pdinference.cli.option_types import FOLDER
from pdinference.models.facts import facts_of_folder
from pdinference.models.progress import DownloadProgress
from pdinference.models.snapshot import fetch as fetch_snapshot


@click.command()
@repository_options
@adapters_option
@job_option
@click.option("--folder", type=FOLDER, required=True, help="Target folder.")
def fetch(*, where: Where | None, job: tuple[str, str] | None, folder: Path, adapters: str) -> None:
    """Download a model to a folder, unless it is there, and verify it."""
    if where is None:
        raise click.UsageError("Give --hub.")
    source, progress = source_of(where), DownloadProgress()

    def work() -> None:
        fetch_snapshot(source, folder, progress)
        progress.facts = facts_of_folder(folder) | adapter_facts(adapters, where)

    with_progress(work, progress, job)
