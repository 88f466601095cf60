"""`pdinference model`: commands of pods beside vLLM, which can also be run manually.

Tests: tests/models/test_fetch.py, tests/models/test_folder.py
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdinference.cli.option_types import object_option
from pdinference.models.adapters import facts_of_adapters
from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.facts import facts_of_folder, facts_of_hub
from pdinference.models.folder import Expected, check_folder
from pdinference.models.hubs.hub import Repository
from pdinference.models.manifest import check as check_manifest
from pdinference.models.progress import DownloadProgress, Phase
from pdinference.models.snapshot import fetch as fetch_snapshot

if TYPE_CHECKING:
    from pdinference.models.hubs.hub import Hub

_PROGRESS_INTERVAL_S = 10.0
_FOLDER = click.Path(path_type=Path, file_okay=False)

_hub_option = click.option("--hub", type=click.Choice(["huggingFace", "modelScope"]), help="Hub of the model.")
_repository_option = click.option("--repository", help="Repository on the hub: owner/name.")
_revision_option = click.option("--revision", help="Branch, tag or commit.")
_job_option = object_option("--job", "Job whose annotation gets the progress.  [default: log it]")
_adapters_option = click.option(
    "--adapters", default="", help="LoRA adapters to inspect, too: comma-separated folders and repositories."
)


@click.group("model")
def model_group() -> None:
    """Download, check and inspect models."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)


@model_group.command()
@_hub_option
@_repository_option
@_revision_option
@_adapters_option
@_job_option
@click.option("--folder", type=_FOLDER, required=True, help="Target folder.")
def fetch(
    *, hub: str, repository: str, revision: str, job: tuple[str, str] | None, folder: Path, adapters: str
) -> None:
    """Download a model to a folder, unless it is there, and verify it."""
    source, progress = hub_of(hub, repository, revision), DownloadProgress()

    def work() -> None:
        fetch_snapshot(source, folder, progress)
        progress.facts = facts_of_folder(folder) | _adapter_facts(adapters, hub)

    _run(work, progress, job)


@model_group.command()
@click.option("--folder", type=_FOLDER, required=True, help="Folder of the model.")
def check(folder: Path) -> None:
    """Check that a folder has a complete download of `fetch`."""
    try:
        manifest = check_manifest(folder)
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{len(manifest.files)} files of commit {manifest.commit} are whole.")


@model_group.command()
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


@model_group.command()
@_hub_option
@_repository_option
@_revision_option
@_adapters_option
@_job_option
@click.option("--folder", type=_FOLDER, help="Folder to inspect, instead of a hub.")
def inspect(
    *, hub: str | None, repository: str, revision: str, job: tuple[str, str] | None, folder: Path | None, adapters: str
) -> None:
    """Print facts about a model for the memory plan, as JSON. Does not read weights."""
    if (hub is None) == (folder is None):
        raise click.UsageError("Give either --hub with --repository and --revision, or --folder.")
    progress = DownloadProgress()

    def work() -> None:
        if folder is not None:
            progress.facts = facts_of_folder(folder)
        else:
            listing, progress.facts = facts_of_hub(hub_of(str(hub), repository, revision))
            progress.commit, progress.total = listing.commit, sum(file.size for file in listing.wanted())
        progress.facts |= _adapter_facts(adapters, hub)
        progress.phase = Phase.READY

    _run(work, progress, job)


def _adapter_facts(adapters: str, hub: str | None) -> dict[str, object]:
    """Facts about adapters. vLLM downloads adapter repositories from the hub of the model."""
    if not adapters:
        return {}
    branch = "master" if hub == "modelScope" else "main"
    return {"adapters": facts_of_adapters(adapters.split(","), lambda path: hub_of(hub or "", path, branch))}


def hub_of(hub: str, repository: str, revision: str) -> "Hub":
    """A repository on the hub with this name."""
    if not repository or not revision:
        raise click.UsageError("A hub needs --repository and --revision.")
    where = Repository(repository, revision)
    if hub == "modelScope":
        from pdinference.models.hubs.model_scope import ModelScopeHub  # noqa: PLC0415

        return ModelScopeHub(where)
    # The client reads these variables when it is imported: no telemetry, and no progress bars in logs.
    os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
    from pdinference.models.hubs.hugging_face import HuggingFaceHub  # noqa: PLC0415

    return HuggingFaceHub(where)


def _run(work: Callable[[], None], progress: DownloadProgress, job: tuple[str, str] | None) -> None:
    try:
        if job is None:
            _run_logged(work, progress)
        else:
            from pdinference.models.job import reported  # noqa: PLC0415

            namespace, name = job
            asyncio.run(reported(work, progress, namespace=namespace, job=name))
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(progress.as_json(), sort_keys=True))


def _run_logged(work: Callable[[], None], progress: DownloadProgress) -> None:
    """Run the work, and log its progress at intervals."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        while wait([running], timeout=_PROGRESS_INTERVAL_S).not_done:
            click.echo(json.dumps(progress.as_json(), sort_keys=True), err=True)
        running.result()
