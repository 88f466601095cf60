"""`pdinference adapter-rules`: the scaling signals for prometheus-adapter."""

import sys

import click
import yaml

from pdinference.planning.scaling.gauges import adapter_rules


@click.command("adapter-rules")
@click.option(
    "--operator-namespace",
    default="pdinference-system",
    show_default=True,
    help="Namespace of the operator's pods, which export the signals.",
)
def adapter_rules_command(operator_namespace: str) -> None:
    """Print the rule with which prometheus-adapter serves the scaling signals (spec.autoscaling.source)."""
    yaml.safe_dump(adapter_rules(operator_namespace), sys.stdout, sort_keys=False, width=10_000)
