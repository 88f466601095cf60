"""All checks, pure: from the facts of the cluster and a resource to findings.

Tests: tests/integration/test_doctor.py
"""

from collections.abc import Sequence

from pdinference.cli.doctor.bandwidth.findings import measured_findings
from pdinference.cli.doctor.bandwidth.measure import BandwidthMeasurement
from pdinference.cli.doctor.devices import devices
from pdinference.cli.doctor.facts import ClusterFacts, Subject
from pdinference.cli.doctor.finding import Finding
from pdinference.cli.doctor.installation import installation
from pdinference.cli.doctor.report import Report
from pdinference.cli.doctor.way import expected, loads, way_findings, way_of


def diagnose(facts: ClusterFacts, subject: Subject | None) -> list[Finding]:
    """The findings that need no measurement."""
    found = [*installation(facts, subject), *devices(facts, subject)]
    return found if subject is None else [*found, *way_findings(facts, subject)]


def report(
    subject: Subject | None, findings: Sequence[Finding], measurement: BandwidthMeasurement | None = None
) -> Report:
    """The report, with what a measurement says."""
    if subject is None:
        return Report(None, tuple(findings))
    way = way_of(subject.resource.spec)
    more = () if measurement is None else measured_findings(way, measurement)
    speed = expected(way) if measurement is None else measurement.measured.speed("pull")
    return Report(subject, (*findings, *more), speed, tuple(loads(subject.plan, speed)), measurement)
