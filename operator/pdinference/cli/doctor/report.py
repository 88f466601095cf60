"""Everything that the command found.

Tests: tests/cli/test_doctor.py, tests/integration/test_doctor.py
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from pdinference.cli.doctor.bandwidth.measure import BandwidthMeasurement
from pdinference.cli.doctor.facts import Subject
from pdinference.cli.doctor.finding import Finding, FindingResult
from pdinference.cli.doctor.way import EXPECTED, CarriedLoad, way_of


@dataclass(frozen=True)
class Report:
    """The findings, and the load that the way carries.

    Attributes:
        subject: The resource; None for the cluster in general.
        speed: GB/s that `loads` follow from: measured, or else expected.
    """

    subject: Subject | None
    findings: tuple[Finding, ...]
    speed: float | None = None
    loads: tuple[CarriedLoad, ...] = ()
    measurement: BandwidthMeasurement | None = None

    @property
    def healthy(self) -> bool:
        """Whether no check found a problem."""
        return all(finding.result is not FindingResult.PROBLEM for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "healthy": self.healthy,
            "findings": [finding.as_json() for finding in self.findings],
            **({} if self.subject is None else self._of_resource(self.subject)),
        }

    def _of_resource(self, subject: Subject) -> dict[str, Any]:
        metadata, way = subject.resource.metadata, way_of(subject.resource.spec)
        pull, push = EXPECTED.get(way, (None, None))
        return {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "way": str(way),
            "expectedGigabytesPerSecond": {"pull": pull, "push": push},
            "load": {"gigabytesPerSecond": self.speed, "prompts": [load.as_json() for load in self.loads]},
            "bandwidth": None if self.measurement is None else _measured(self.measurement),
        }


def _measured(found: BandwidthMeasurement) -> dict[str, Any]:
    nodes = {str(role): node for role, node in found.nodes.items()}
    return {**msgspec.to_builtins(found.measured), "nodes": nodes}
