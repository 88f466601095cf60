"""Prints a report as text and tables.

Tests: tests/cli/test_doctor.py
"""

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pdinference.cli.doctor.bandwidth.measure import BandwidthMeasurement
from pdinference.cli.doctor.finding import FindingResult
from pdinference.cli.doctor.report import Report
from pdinference.memory.link_speeds import GIGA

_STYLES: Final = {FindingResult.OK: "green", FindingResult.PROBLEM: "bold red", FindingResult.UNKNOWN: "yellow"}


def print_report(report: Report, console: Console) -> None:
    """Print a report."""
    if report.subject is not None:
        metadata = report.subject.resource.metadata
        console.print(Text(f"{metadata.namespace}/{metadata.name}", style="bold"))
    console.print(_findings(report))
    if report.measurement is not None:
        console.print()
        console.print(_cases(report.measurement))
    if report.loads:
        console.print()
        console.print(_loads(report))
    problems, unclear, fine = (
        sum(finding.result is result for finding in report.findings)
        for result in (FindingResult.PROBLEM, FindingResult.UNKNOWN, FindingResult.OK)
    )
    console.print()
    console.print(Text(f"{problems} problems, {unclear} unknown, {fine} ok"))


def _findings(report: Report) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", max_width=28)
    table.add_column(overflow="fold")
    for finding in report.findings:
        text = Text(finding.found)
        if finding.remedy:
            text.append(f"\n{finding.remedy}", style="italic")
        table.add_row(Text(finding.result, style=_STYLES[finding.result]), Text(finding.subject), text)
    return table


def _cases(measurement: BandwidthMeasurement) -> Table:
    table = Table(title="measured between two pods", title_justify="left")
    for column in ("direction", "at once", "first GB/s", "GB/s", "transfers"):
        table.add_column(column, justify="left" if column == "direction" else "right")
    names = {"pull": "D pulls", "push": "P pushes"}
    for case in measurement.measured.cases:
        speeds = (f"{case.first / GIGA:.2f}", f"{case.speed / GIGA:.2f}")
        table.add_row(names[case.direction], str(case.at_once), *speeds, f"{case.transfers:,}")
    return table


def _loads(report: Report) -> Table:
    source = "measured" if report.measurement is not None else "expected"
    table = Table(title=f"load that {report.speed:.2g} GB/s ({source}) carry", title_justify="left")
    for column in ("prompt tokens", "KV cache", "one transfer", "prompts a second"):
        table.add_column(column, justify="right")
    for load in report.loads:
        size, seconds = f"{load.bytes / GIGA:,.3g} GB", f"{load.seconds:,.3g} s"
        table.add_row(f"{load.tokens:,}", size, seconds, f"{load.per_second:,.3g}")
    return table
