"""`pdinference activator run`: the container in front of the router of a resource with `scaleToZero`."""

import asyncio

import click

from pdinference.api import names


@click.group("activator")
def activator_command() -> None:
    """Queue requests while a model has no pods."""


@activator_command.command("run")
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")  # noqa: S104 - in a pod
@click.option("--port", type=click.IntRange(0, 65535), default=names.ROUTER_PORT, help="Port for requests.")
@click.option(
    "--state-port",
    type=click.IntRange(0, 65535),
    default=names.ACTIVATOR_STATE_PORT,
    help="Port of /metrics, /healthz and /readyz.",
)
@click.option("--router-port", type=click.IntRange(1, 65535), default=names.ROUTER_BEHIND_PORT, help="The router's.")
@click.option("--max-queued-requests", type=click.IntRange(1), default=100, show_default=True)
@click.option("--max-wait-seconds", type=click.FloatRange(0, min_open=True), default=600, show_default=True)
@click.option(
    "--drain-seconds", type=click.FloatRange(0), default=300, show_default=True, help="Drain time after SIGTERM."
)
def run_command(
    *,
    host: str,
    port: int,
    state_port: int,
    router_port: int,
    max_queued_requests: int,
    max_wait_seconds: float,
    drain_seconds: float,
) -> None:
    """Forward requests to the router in the same pod, and queue them while the router has no pods to send them to."""
    from pdinference.activator.gate import Gate  # noqa: PLC0415 - the import of aiohttp is slow
    from pdinference.activator.run import Ports, run  # noqa: PLC0415

    async def serve() -> None:
        gate = Gate(limit=max_queued_requests, max_wait=max_wait_seconds)
        await run(Ports(port, state_port, router_port, host), gate, drain_seconds=drain_seconds)

    asyncio.run(serve())
