"""`pdinference check`: whether an installed operator answers the API server. `helm test` runs it in a pod."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import click

from pdinference.api import names

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer

Json = dict[str, Any]
Check = Callable[["ApiServer", str], Awaitable[str | None]]

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
@click.option("--namespace", "-n", help="Namespace that the operator serves.  [default: the current one]")
@click.option("--webhook/--no-webhook", default=True, show_default=True, help="Whether the webhook is installed.")
@click.option("--metrics-api/--no-metrics-api", default=True, show_default=True, help="Whether the metrics API is.")
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for an answer after an upgrade.")
def check_command(namespace: str | None, *, webhook: bool, metrics_api: bool, wait: float) -> None:
    """Check that an installed operator answers: its webhook and its metrics API.

    Sends an invalid PDInference as a dry run, so nothing is stored. That takes the right to create PDInferences.
    """
    from pdinference.cluster.client import default_namespace  # noqa: PLC0415 - the client takes a second to import

    chosen = namespace or default_namespace()
    for wanted, subject, check in (
        (webhook, "webhook", _webhook_problem),
        (metrics_api, "metrics API", _metrics_api_problem),
    ):
        if not wanted:
            continue
        if problem := asyncio.run(_last_problem(check, chosen, wait)):
            raise click.ClickException(f"The {subject} does not answer as it should: {problem}")
        click.echo(f"The {subject} answers.")


async def _last_problem(check: Check, namespace: str, wait: float) -> str | None:
    """The problem at the end of the wait; None as soon as there is none."""
    from pdinference.cluster.client import ApiServer, load_configuration  # noqa: PLC0415

    api = ApiServer(await load_configuration(), user_agent="pdinference-check")
    end = time.monotonic() + wait
    try:
        while True:
            problem = await check(api, namespace)
            if problem is None or time.monotonic() > end:
                return problem
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        await api.close()


async def _webhook_problem(api: "ApiServer", namespace: str) -> str | None:
    from pdinference.cluster.errors import ApiError  # noqa: PLC0415

    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    try:
        await api.create(path, _INVALID, dryRun="All")
    except ApiError as error:
        return None if _REFUSED in error.message else str(error)
    return (
        "an invalid PDInference was accepted. Either the operator has not registered its webhook yet (see its log), or "
        f"it does not serve namespace {namespace}."
    )


async def _metrics_api_problem(api: "ApiServer", _: str) -> str | None:
    from pdinference.cluster.errors import ApiError  # noqa: PLC0415
    from pdinference.loadmetrics.metrics_api.api import API_VERSION  # noqa: PLC0415

    try:
        await api.get(f"/apis/{API_VERSION}")
    except ApiError as error:
        return str(error)
    return None
