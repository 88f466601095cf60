"""The command `pdinference doctor`.

Tests: tests/cli/test_doctor.py, tests/integration/test_doctor.py
"""

import asyncio
import sys
from typing import IO, Final

import click

from pdinference.cli.chosen import name_argument
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.doctor.examination import examined
from pdinference.cli.doctor.report import Report
from pdinference.cli.doctor.text import print_report
from pdinference.cli.documents import one_document
from pdinference.cli.file_options import file_option
from pdinference.cli.installation import installation
from pdinference.cli.output import output_option, print_json
from pdinference.cli.terminal import terminal
from pdinference.cluster.client import ApiServer
from pdinference.manifests import RenderSettings

_PROBLEM: Final = 1


@click.command("doctor")
@name_argument
@file_option("File with one PDInference, instead of the stored one; - reads standard input.", required=False)
@click.option("--bandwidth", is_flag=True, help="Measure how fast KV cache moves between pods like P and D.")
@click.option(
    "--timeout",
    type=click.IntRange(10, 3600),
    default=600,
    show_default=True,
    help="Seconds for --bandwidth, with the start of the pods.",
)
@output_option()
@connection_options
@installation
def doctor_command(
    *,
    name: str | None,
    source: IO[str] | None,
    bandwidth: bool,
    timeout: int,
    output: str,
    connect: Connect,
    settings: RenderSettings,
) -> None:
    """Check whether the cluster has what the KV transfer of a PDInference needs.

    With NAME, the logs of containers that stopped are read too, and the line is quoted that says why.

    Without NAME and FILE, the cluster in general is checked. What you may not read is reported as unknown, with the
    missing right. Nothing is written, except with --bandwidth: then Jobs run for some seconds, with the devices of
    one P pod and one D pod, and are removed at the end.

    The exit status is 1 if there is a problem, and 0 otherwise, also if something is unknown.
    """
    if name is not None and source is not None:
        raise click.UsageError("Write NAME or -f FILE, not both.")
    if bandwidth and name is None and source is None:
        raise click.UsageError("--bandwidth needs the NAME of a PDInference, or -f FILE.")

    async def work(api: ApiServer, namespace: str) -> Report:
        which = name if source is None else one_document(source, namespace)
        return await examined(api, namespace, which, settings, timeout if bandwidth else None)

    try:
        report = connect(name or "").do(work)
    except asyncio.CancelledError:  # SIGTERM; the pods are gone
        raise click.Abort from None
    _print(report, output)
    sys.exit(0 if report.healthy else _PROBLEM)


def _print(found: Report, output: str) -> None:
    if output == "json":
        print_json(found.as_json())
        return

    print_report(found, terminal())
