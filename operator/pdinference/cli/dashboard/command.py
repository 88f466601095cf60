"""The command `pdinference dashboard`.

Tests: tests/cli/test_commands.py
"""

from importlib.resources import files
from typing import Any, Final

import click
import yaml

from pdinference.cli.plain_yaml import PlainDumper

_FILE: Final = "pdinference.json"
_SIDECAR_LABEL: Final = {"grafana_dashboard": "1"}
"""The label that the sidecar of Grafana's chart looks for."""


@click.command("dashboard")
@click.option(
    "-o", "--output", type=click.Choice(["json", "configmap"]), default="json", show_default=True,
    help="configmap: for the sidecar of Grafana's chart.",
)  # fmt: skip
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the ConfigMap.")
def dashboard_command(output: str, namespace: str) -> None:
    """Print the Grafana dashboard: scale, load, memory by role, latency, KV transfer, objectives and GPUs.

    The chart installs the same with dashboard.enabled. In Grafana, import the JSON and choose the Prometheus that
    scrapes the pods; or apply the ConfigMap.
    """
    text = files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    if output == "json":
        click.echo(text, nl=False)
    else:
        click.echo(yaml.dump(_configmap(text, namespace), Dumper=PlainDumper, sort_keys=False), nl=False)


def _configmap(text: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": "pdinference-dashboard", "namespace": namespace, "labels": _SIDECAR_LABEL}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_FILE: text}}
