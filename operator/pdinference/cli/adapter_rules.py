"""`pdinference adapter-rules`: the scaling signals for prometheus-adapter."""

import sys

import click
import yaml

from pdinference.planning.scaling.adapter import adapter_rules
from pdinference.planning.scaling.queries import DEFAULT_WINDOW_SECONDS


@click.command("adapter-rules")
@click.option(
    "--window-seconds",
    type=click.IntRange(10, 3600),
    default=DEFAULT_WINDOW_SECONDS,
    show_default=True,
    help="Over how long rates are taken: at least four scrapes.",
)
def adapter_rules_command(window_seconds: int) -> None:
    """Print the rules with which prometheus-adapter serves the scaling signals (spec.autoscaling.source)."""
    yaml.safe_dump(adapter_rules(window_seconds), sys.stdout, sort_keys=False, width=10_000)
