"""`pdinference batch run`: what the Job of a PDBatch runs. It needs no cluster, only a service and two places."""

import asyncio
import logging
import sys
from pathlib import Path

import click

from pdinference.api import names


@click.group("batch")
def batch_command() -> None:
    """Offline work: many requests from a file."""


@batch_command.command("run")
@click.option(
    "--input",
    "source",
    required=True,
    type=click.Path(path_type=Path),
    help="File of requests, one a line, in the format of OpenAI's batch API.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for output.jsonl and errors.jsonl. A run that was interrupted goes on there.",
)
@click.option(
    "--output-config-map",
    metavar="NAMESPACE/NAME",
    help="ConfigMap for them, which exists, instead of a folder.",
)
@click.option(
    "--input-root",
    type=click.Path(path_type=Path),
    help="Folder that the input has to be in, wherever links lead.  [default: anywhere]",
)
@click.option(
    "--output-root", type=click.Path(path_type=Path), help="The same of the output folder.  [default: anywhere]"
)
@click.option("--url", required=True, help="Address of the service, less /v1/....")
@click.option("--model", help="Model of every request.  [default: what its line says]")
@click.option("--default-model", help="Model of requests that name none.")
@click.option("--concurrency", type=click.IntRange(1), default=16, show_default=True, help="Requests at a time.")
@click.option("--max-retries", type=click.IntRange(0), default=5, show_default=True, help="Retries of a request.")
@click.option(
    "--request-timeout", type=click.FloatRange(0, min_open=True), default=600, show_default=True, help="Seconds."
)
@click.option(
    "--patience",
    type=click.FloatRange(0, min_open=True),
    default=300,
    show_default=True,
    help="Seconds that the service as a whole may be away.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=names.RUNNER_METRICS_PORT,
    show_default=True,
    help="Port of /metrics; 0 takes a free one.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="File for the last words: the counts and a sentence, as JSON.  [default: none]",
)
def run_command(
    *,
    source: Path,
    output: Path | None,
    output_config_map: str | None,
    input_root: Path | None,
    output_root: Path | None,
    url: str,
    model: str | None,
    default_model: str | None,
    concurrency: int,
    max_retries: int,
    request_timeout: float,
    patience: float,
    metrics_port: int,
    report: Path | None,
) -> None:
    """Send the requests of a file to a service, and keep the answers."""
    from pdinference.runner.run import Task, run  # noqa: PLC0415 - aiohttp takes its time to import
    from pdinference.runner.sending import Service  # noqa: PLC0415
    from pdinference.runner.stores import ConfigMapName  # noqa: PLC0415

    if (output is None) == (output_config_map is None):
        raise click.UsageError("Give either --output or --output-config-map.")
    namespace, _, name = (output_config_map or "").partition("/")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    service = Service(
        url=url.rstrip("/"),
        model=model,
        default_model=default_model,
        max_retries=max_retries,
        timeout_s=request_timeout,
        patience_s=patience,
    )
    task = Task(
        source=source,
        output=output or ConfigMapName(namespace, name),
        service=service,
        concurrency=concurrency,
        metrics_port=metrics_port,
        report=report,
        input_root=input_root,
        output_root=output_root,
    )
    sys.exit(asyncio.run(run(task)))
