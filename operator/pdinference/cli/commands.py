"""The `pdinference` command."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import click
import yaml

from pdinference.api.validation import InvalidResourceError
from pdinference.checks import Examination, examine
from pdinference.cli.adapter_rules import adapter_rules_command
from pdinference.cli.batch import batch_command
from pdinference.cli.check import check_command
from pdinference.cli.completion import completion_command
from pdinference.cli.convert import convert_command
from pdinference.cli.dashboard.command import dashboard_command
from pdinference.cli.doctor.command import doctor_command
from pdinference.cli.documents import documents, problems_reported
from pdinference.cli.explain.command import explain_command
from pdinference.cli.file_options import files_option
from pdinference.cli.history.commands import diff_command, history_command, undo_command
from pdinference.cli.installation import installation
from pdinference.cli.local_adapters import local_facts
from pdinference.cli.logs.command import logs_command
from pdinference.cli.model_commands import model_group
from pdinference.cli.option_types import NumberRange, object_option
from pdinference.cli.output import say
from pdinference.cli.pause import pause_command, resume_command
from pdinference.cli.plain_yaml import BlockDumper, PlainDumper
from pdinference.cli.plan.command import plan_command
from pdinference.cli.plugins import add_plugins
from pdinference.cli.program import Program
from pdinference.cli.requests.bench import bench_command
from pdinference.cli.requests.chat import chat_command
from pdinference.cli.restart import restart_command
from pdinference.cli.router import router_command
from pdinference.cli.status.command import status_command
from pdinference.cli.tls import tls_options
from pdinference.cli.top.command import top_command
from pdinference.cli.validate import validate_command
from pdinference.manifests import RenderSettings

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


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pdinference")
def main() -> None:
    """Serve large language models with vLLM on Kubernetes, with disaggregated prefill and decode."""


@main.command()
@click.argument("names_", metavar="[NAME]...", nargs=-1)
def crd(names_: tuple[str, ...]) -> None:
    """Print all CustomResourceDefinitions, or those with the given names."""
    from pdinference.api.crd import definitions  # noqa: PLC0415 - the import of JSON schemas is slow

    found = definitions()
    for name in names_:
        if name not in found:
            raise click.ClickException(f"There is no definition {name}; there are {', '.join(found)}.")
    # Flow style for leaves makes the file a fifth smaller, because most of a schema is indentation.
    _print_yaml([found[name] for name in names_ or found], default_flow_style=None, width=1000)


@main.command("render")
@files_option()
@click.option("-n", "--namespace", default=None, help="Namespace of resources without one.  [default: default]")
@installation
def render_command(sources: tuple[IO[str], ...], namespace: str | None, settings: RenderSettings) -> None:
    """Print the objects that the operator would apply, without a cluster."""
    for source in sources:
        for document in documents(source, namespace):
            with problems_reported(document, source.name):
                _print_rendered(document, source.name, settings)


def _print_rendered(document: dict[str, Any], file: str, settings: RenderSettings) -> None:
    examination = examine(document, settings, local_facts)
    _warn(examination, file)
    if examination.rendered is None:
        raise InvalidResourceError(examination.problems)
    _print_yaml(examination.rendered.objects, Dumper=BlockDumper)


@main.command()
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
def run(settings: RenderSettings, tls: dict[str, Any], **options: Any) -> None:
    """Run the operator."""
    # The import of Kopf and the Kubernetes client takes a second. `render` and `crd` do not need them.
    from pdinference.runtime.run import run as run_operator  # noqa: PLC0415
    from pdinference.runtime.settings import OperatorSettings, TLSSettings  # noqa: PLC0415

    sys.exit(run_operator(OperatorSettings(render=settings, tls=TLSSettings(**tls), **options)))


def _warn(examination: Examination, file: str) -> None:
    for warning in examination.warnings:
        say(f"Warning: {file}: {warning}", err=True)


def _print_yaml(objects: Iterable[Any], **style: Any) -> None:
    style = {"Dumper": PlainDumper, "default_flow_style": False, "width": 120, **style}
    yaml.dump_all(objects, sys.stdout, sort_keys=False, explicit_start=True, **style)


main.add_command(validate_command)
main.add_command(status_command)
main.add_command(top_command)
main.add_command(logs_command)
main.add_command(restart_command)
main.add_command(chat_command)
main.add_command(bench_command)
main.add_command(plan_command)
main.add_command(explain_command)
main.add_command(doctor_command)
main.add_command(history_command)
main.add_command(diff_command)
main.add_command(undo_command)
main.add_command(pause_command)
main.add_command(resume_command)
main.add_command(convert_command)
main.add_command(check_command)
main.add_command(adapter_rules_command)
main.add_command(model_group)
main.add_command(batch_command)
main.add_command(router_command)
main.add_command(dashboard_command)
main.add_command(completion_command)
add_plugins(main)
