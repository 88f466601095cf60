"""The command `pdinference run`: the operator.

Tests: tests/cli/test_option_types.py, tests/charts/test_objects.py
"""

import sys
from pathlib import Path
from typing import Any

import click

from pdinference.cli.installation import installation
from pdinference.cli.option_types import NumberRange, object_option
from pdinference.cli.tls import tls_options
from pdinference.manifests import RenderSettings
from pdinference.runtime.run import run
from pdinference.runtime.settings import OperatorSettings, TLSSettings

_HIGHEST_PRICE = 1_000_000


def _prices(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for value in values:
        product, _, price = value.rpartition("=")
        try:
            found[product] = float(price)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not PRODUCT=PRICE") from None
        if not product or not 0 <= found[product] <= _HIGHEST_PRICE:
            raise click.BadParameter(f"{value!r} is not PRODUCT=PRICE, with a price from 0 to {_HIGHEST_PRICE:,}")
    return found


@click.command("run")
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Namespace to serve; repeatable.  [default: all]")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Cluster to work on.  [default: the pod's own, else that of kubectl]",
)
@click.option(
    "--leader-elect/--no-leader-elect", default=True, show_default=True, help="Reconcile only while holding the Lease."
)
@click.option("--lease-namespace", default="default", show_default=True, help="Namespace of the Lease.")
@click.option("--workers", type=click.IntRange(1), default=8, show_default=True, help="Concurrent reconciles.")
@click.option(
    "--resync-seconds",
    type=NumberRange(0, min_open=True),
    default=600,
    show_default=True,
    help="Interval of complete lists, which correct missed watch events.",
)
@click.option(
    "--health-port",
    "port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port of /healthz, /readyz and /metrics; 0 selects a free port.",
)
@installation
@tls_options
@object_option(
    "--metrics-service",
    "Service of this operator in the APIService for external metrics.  [default: serve no metrics]",
)
@click.option(
    "--scrape-seconds",
    type=NumberRange(0, min_open=True),
    default=5,
    show_default=True,
    help="Interval of reading the load of autoscaled pods.",
)
@click.option("--log-format", type=click.Choice(["json", "plain"]), default="json", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--gpu-price",
    "prices",
    metavar="PRODUCT=PRICE",
    multiple=True,
    callback=_prices,
    help="Price of an hour of a GPU product, in any currency, for the cost of tokens; repeatable.  [default: none]",
)
def run_command(settings: RenderSettings, tls: dict[str, Any], **options: Any) -> None:
    """Run the operator."""
    sys.exit(run(OperatorSettings(render=settings, tls=TLSSettings(**tls), **options)))
