"""What the commands that find facts about a model have in common: options, adapters, and reports of the progress.

Tests: tests/models/test_fetch.py
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import wraps
from typing import Any

import click

from pdinference.cli.model.hubs import Where, hub_of
from pdinference.cli.option_types import object_option
from pdinference.engine.model_cache import BUCKET
from pdinference.models.adapters import facts_of_adapters
from pdinference.models.errors import ModelError
from pdinference.models.job import reported
from pdinference.models.progress import DownloadProgress

_PROGRESS_INTERVAL_S = 10.0
_HUBS = ("huggingFace", "modelScope")

job_option = object_option("--job", "Job whose annotation gets the progress.  [default: log it]")
adapters_option = click.option(
    "--adapters", default="", help="LoRA adapters to inspect, too: comma-separated folders and repositories."
)


def repository_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a model on a hub or in a bucket; the command gets a `Where`, or None without --hub."""

    @click.option("--hub", type=click.Choice([*_HUBS, BUCKET]), help="Hub of the model, or a bucket.")
    @click.option(
        "--repository", default="", help="Repository on the hub: owner/name. Of a bucket: s3://BUCKET/FOLDER."
    )
    @click.option("--revision", default="", help="Branch, tag or commit on a hub.")
    @click.option("--endpoint", help="URL of the bucket's server.  [default: AWS]")
    @click.option("--region", default="us-east-1", show_default=True, help="Region of the bucket.")
    @wraps(command)
    def with_where(
        *, hub: str | None, repository: str, revision: str, endpoint: str | None, region: str, **options: Any
    ) -> Any:
        where = None if hub is None else Where(hub, repository, revision, endpoint, region)
        return command(where=where, **options)

    return with_where


def adapter_facts(adapters: str, where: Where | None) -> dict[str, object]:
    """Facts about adapters. vLLM downloads adapter repositories from the hub of the model."""
    if not adapters:
        return {}
    hub = where.hub if where and where.hub in _HUBS else _HUBS[0]
    branch = "master" if hub == "modelScope" else "main"
    return {"adapters": facts_of_adapters(adapters.split(","), lambda path: hub_of(hub, path, branch))}


def with_progress(work: Callable[[], None], progress: DownloadProgress, job: tuple[str, str] | None) -> None:
    """Run the work, report its progress to a Job or in the log, and print the facts at the end.

    Raises:
        ClickException: The work failed.
    """
    try:
        if job is None:
            _logged(work, progress)
        else:
            namespace, name = job
            asyncio.run(reported(work, progress, namespace=namespace, job=name))
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(progress.as_json(), sort_keys=True))


def _logged(work: Callable[[], None], progress: DownloadProgress) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        while wait([running], timeout=_PROGRESS_INTERVAL_S).not_done:
            click.echo(json.dumps(progress.as_json(), sort_keys=True), err=True)
        running.result()
