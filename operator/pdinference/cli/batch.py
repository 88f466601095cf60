"""`pdinference batch run`: the command of a PDBatch's Job. Needs a service, an input and an output, but no cluster.

Tests: tests/runner/test_run.py, tests/integration/test_batch_output.py
"""

import asyncio
import logging
import sys
from pathlib import Path

import click

from pdinference.api import names
from pdinference.cli.option_types import NumberRange, object_option
from pdinference.runner.run import Task, run
from pdinference.runner.sending import Service
from pdinference.runner.stores import ConfigMapName


@click.group("batch")
def batch_command() -> None:
    """Run batches of requests from a file."""


@batch_command.command("run")
@click.option(
    "--input",
    "source",
    required=True,
    type=click.Path(path_type=Path),
    help="File with one request per line, in the format of OpenAI's batch API.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for output.jsonl and errors.jsonl. A new run resumes an interrupted one.",
)
@object_option("--output-config-map", "Existing ConfigMap for the output, instead of a folder.")
@click.option(
    "--input-root",
    type=click.Path(path_type=Path),
    help="Folder that must contain the input after links are resolved.  [default: any folder]",
)
@click.option(
    "--output-root", type=click.Path(path_type=Path), help="The same for the output folder.  [default: any folder]"
)
@click.option("--url", required=True, help="URL of the service without /v1/....")
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    help="File whose first line of at least 16 characters is the API key.  [default: no key]",
)
@click.option(
    "--certificate-file",
    type=click.Path(path_type=Path),
    help="PEM file with the certificate of the service, to trust no other one.  [default: known authorities]",
)
@click.option("--model", help="Model of all requests.  [default: the model in each line]")
@click.option("--default-model", help="Model of requests without one.")
@click.option("--concurrency", type=click.IntRange(1), default=16, show_default=True, help="Concurrent requests.")
@click.option("--max-retries", type=click.IntRange(0), default=5, show_default=True, help="Retries of each request.")
@click.option("--request-timeout", type=NumberRange(0, min_open=True), default=600, show_default=True, help="Seconds.")
@click.option(
    "--patience",
    type=NumberRange(0, min_open=True),
    default=300,
    show_default=True,
    help="Seconds that the service may be unavailable.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=names.RUNNER_METRICS_PORT,
    show_default=True,
    help="Port of /metrics; 0 selects a free port.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="File for the termination message: counts and a sentence, as JSON.  [default: none]",
)
def run_command(
    *,
    source: Path,
    output: Path | None,
    output_config_map: tuple[str, str] | None,
    input_root: Path | None,
    output_root: Path | None,
    url: str,
    api_key_file: Path | None,
    certificate_file: Path | None,
    model: str | None,
    default_model: str | None,
    concurrency: int,
    max_retries: int,
    request_timeout: float,
    patience: float,
    metrics_port: int,
    report: Path | None,
) -> None:
    """Send the requests of a file to a service, and store the responses."""
    store = output if output_config_map is None else ConfigMapName(*output_config_map)
    if store is None or (output is not None and output_config_map is not None):
        raise click.UsageError("Give either --output or --output-config-map.")
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
        output=store,
        service=service,
        concurrency=concurrency,
        metrics_port=metrics_port,
        report=report,
        input_root=input_root,
        output_root=output_root,
        key_file=api_key_file,
        certificate_file=certificate_file,
    )
    sys.exit(asyncio.run(run(task)))
