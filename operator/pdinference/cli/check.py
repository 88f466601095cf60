"""`pdinference check`: whether an installed operator answers the API server. `helm test` runs it in a pod."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import click

from pdinference.api import names
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.option_types import NumberRange
from pdinference.cli.output import output_option, print_json
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.loadmetrics.metrics_api.group import API_VERSION

Json = dict[str, Any]
Check = Callable[[], Awaitable[str | None]]

_PROBLEM: Final = 1
_PAUSE_SECONDS: Final = 2.0
_OPTION: Final = "max-logprob"
_REFUSED: Final = f"spec.engine.args.{_OPTION}"
"""An option that the schema accepts and the webhook refuses."""
_INVALID: Final[Json] = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "pdinference-check"},
    "spec": {
        "model": {"source": {"huggingFace": {"repository": "pdinference/check"}}},
        "engine": {"args": {_OPTION: 1}},
    },
}


@click.command("check")
@click.option("--webhook/--no-webhook", default=True, show_default=True, help="Whether the webhook is installed.")
@click.option("--metrics-api/--no-metrics-api", default=True, show_default=True, help="Whether the metrics API is.")
@click.option(
    "--wait",
    type=NumberRange(0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for an answer after an upgrade.",
)
@output_option()
@connection_options
def check_command(*, webhook: bool, metrics_api: bool, wait: float, output: str, connect: Connect) -> None:
    """Check that an installed operator answers: its webhook and its metrics API.

    Sends an invalid PDInference as a dry run, so nothing is stored. That takes the right to create PDInferences in the
    namespace, which the operator must serve.
    """
    checks = (
        (webhook, "webhook", "webhook", _webhook_problem),
        (metrics_api, "metricsApi", "metrics API", _metrics_api_problem),
    )
    problems: dict[str, str | None] = {}

    async def work(api: ApiServer, namespace: str) -> None:
        for wanted, key, subject, check in checks:
            if not wanted:
                continue
            problems[key] = problem = await _last_problem(partial(check, api, namespace), wait)
            if output == "text" and problem is None:
                click.echo(f"The {subject} answers.")
            if output == "text" and problem is not None:
                raise click.ClickException(f"The {subject} does not answer as it should: {problem}")

    connect("").do(work)
    if output == "json":
        print_json({key: {"answers": problem is None, "problem": problem or ""} for key, problem in problems.items()})
        sys.exit(_PROBLEM if any(problems.values()) else 0)


async def _last_problem(check: Check, wait: float) -> str | None:
    """The problem at the end of the wait; None as soon as there is none."""
    end = time.monotonic() + wait
    while True:
        problem = await check()
        if problem is None or time.monotonic() > end:
            return problem
        await asyncio.sleep(_PAUSE_SECONDS)


async def _webhook_problem(api: ApiServer, namespace: str) -> str | None:
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    try:
        await api.create(path, _INVALID, dryRun="All")
    except ApiError as error:
        return None if _REFUSED in error.message else str(error)
    return (
        "an invalid PDInference was accepted. Either the operator has not registered its webhook yet (see its log), or "
        f"it does not serve namespace {namespace}."
    )


async def _metrics_api_problem(api: ApiServer, _: str) -> str | None:
    try:
        await api.get(f"/apis/{API_VERSION}")
    except ApiError as error:
        return str(error)
    return None
