"""`pdinference model`: what runs in pods beside vLLM, and may be tried by hand."""

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

if TYPE_CHECKING:
    from pdinference.models.hubs.hub import Hub
    from pdinference.models.progress import Progress

_TELL_EVERY_S = 10.0
_FOLDER = click.Path(path_type=Path, file_okay=False)

_hub_option = click.option("--hub", type=click.Choice(["huggingFace", "modelScope"]), help="Where it comes from.")
_repository_option = click.option("--repository", help="Repository there: owner/name.")
_revision_option = click.option("--revision", help="Branch, tag or commit.")
_job_option = click.option(
    "--job", metavar="NAMESPACE/NAME", help="Job whose annotation tells how far it is.  [default: say so here]"
)
_adapters_option = click.option(
    "--adapters", default="", help="LoRA adapters to look at too: folders and repositories, with commas between."
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
@click.option("--folder", type=_FOLDER, required=True, help="Where its files shall be.")
def fetch(*, hub: str, repository: str, revision: str, job: str | None, folder: Path, adapters: str) -> None:
    """Download a model into a folder, unless it is there, and verify it."""
    from pdinference.models.facts import facts_of_folder  # noqa: PLC0415 - hubs' clients take a second to import
    from pdinference.models.progress import Progress  # noqa: PLC0415
    from pdinference.models.snapshot import fetch as fetch_snapshot  # noqa: PLC0415

    source, progress = hub_of(hub, repository, revision), Progress()

    def work() -> None:
        fetch_snapshot(source, folder, progress)
        progress.facts = facts_of_folder(folder) | _adapter_facts(adapters, hub)

    _run(work, progress, job)


@model_group.command()
@click.option("--folder", type=_FOLDER, required=True, help="Where its files are.")
def check(folder: Path) -> None:
    """Check that a folder holds a whole model, as `fetch` left it."""
    from pdinference.models.errors import ModelError  # noqa: PLC0415
    from pdinference.models.manifest import check as check_manifest  # noqa: PLC0415

    try:
        manifest = check_manifest(folder)
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{len(manifest.files)} files of commit {manifest.commit} are whole.")


@model_group.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="Where the model is.")
@click.option("--field", default="the path", help="What to correct when it is not there.")
@click.option("--load-format", default="auto", help="How vLLM is going to load its weights.")
@click.option("--config/--no-config", default=True, help="Whether its config is to be there too.")
def look(*, folder: Path, field: str, load_format: str, config: bool) -> None:
    """Look whether vLLM can load what somebody else put into a folder: headers and sizes only."""
    from pdinference.models.errors import ModelFilesError  # noqa: PLC0415
    from pdinference.models.folder import Expected, check_folder  # noqa: PLC0415

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
@click.option("--folder", type=_FOLDER, help="Folder to look into, instead of a hub.")
def inspect(
    *, hub: str | None, repository: str, revision: str, job: str | None, folder: Path | None, adapters: str
) -> None:
    """Tell what is known of a model, without its weights: JSON that the memory plan is made of."""
    from pdinference.models.facts import facts_of_folder, facts_of_hub  # noqa: PLC0415
    from pdinference.models.progress import Phase, Progress  # noqa: PLC0415

    if (hub is None) == (folder is None):
        raise click.UsageError("Give either --hub with --repository and --revision, or --folder.")
    progress = Progress()

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
    """What is known of adapters; vLLM looks for those that are repositories on the hub of the model."""
    from pdinference.models.adapters import facts_of_adapters  # noqa: PLC0415

    if not adapters:
        return {}
    branch = "master" if hub == "modelScope" else "main"
    return {"adapters": facts_of_adapters(adapters.split(","), lambda path: hub_of(hub or "", path, branch))}


def hub_of(hub: str, repository: str, revision: str) -> "Hub":
    """A repository on the hub of this name."""
    from pdinference.models.hubs.hub import Repository  # noqa: PLC0415

    if not repository or not revision:
        raise click.UsageError("A hub needs --repository and --revision.")
    where = Repository(repository, revision)
    if hub == "modelScope":
        from pdinference.models.hubs.model_scope import ModelScopeHub  # noqa: PLC0415

        return ModelScopeHub(where)
    # Read when the client is imported: it shall tell nobody what is downloaded, and draw no bars into logs.
    os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
    from pdinference.models.hubs.hugging_face import HuggingFaceHub  # noqa: PLC0415

    return HuggingFaceHub(where)


def _run(work: Callable[[], None], progress: "Progress", job: str | None) -> None:
    from pdinference.models.errors import ModelError  # noqa: PLC0415

    try:
        if job is None:
            _told(work, progress)
        else:
            from pdinference.models.job import reported  # noqa: PLC0415

            namespace, _, name = job.partition("/")
            asyncio.run(reported(work, progress, namespace=namespace, job=name))
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(progress.as_json(), sort_keys=True))


def _told(work: Callable[[], None], progress: "Progress") -> None:
    """Do the work, and say now and then how far it is."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        while wait([running], timeout=_TELL_EVERY_S).not_done:
            click.echo(json.dumps(progress.as_json(), sort_keys=True), err=True)
        running.result()
