"""The command `pdinference model inspect`.

Tests: tests/models/test_fetch.py
"""

from pathlib import Path

import click

from pdinference.cli.model.facts import adapter_facts, adapters_option, job_option, repository_options, with_progress
from pdinference.cli.model.hubs import Where, source_of
from pdinference.cli.option_types import FOLDER
from pdinference.models.facts import facts_of_folder, facts_of_hub
from pdinference.models.progress import DownloadProgress, Phase


@click.command()
@repository_options
@adapters_option
@job_option
@click.option("--folder", type=FOLDER, help="Folder to inspect, instead of a hub.")
def inspect(*, where: Where | None, job: tuple[str, str] | None, folder: Path | None, adapters: str) -> None:
    """Print facts about a model for the memory plan, as JSON. Does not read weights."""
    if (where is None) == (folder is None):
        raise click.UsageError("Give either --hub with --repository and --revision, or --folder.")
    progress = DownloadProgress()

    def work() -> None:
        if folder is not None:
            progress.facts = facts_of_folder(folder)
        elif where is not None:
            listing, progress.facts = facts_of_hub(source_of(where))
            progress.commit, progress.total = listing.commit, sum(file.size for file in listing.wanted())
        progress.facts |= adapter_facts(adapters, where)
        progress.phase = Phase.READY

    with_progress(work, progress, job)
