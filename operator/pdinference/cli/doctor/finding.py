"""The result of one check.

Tests: tests/cli/test_doctor.py
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FindingResult(StrEnum):
    """Result of a check."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        subject: What was checked.
        result: Whether it is as it should be.
        found: What there is.
        remedy: What to set or to do; empty if nothing.
    """

    subject: str
    result: FindingResult
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        """All members."""
        return {"subject": self.subject, "result": str(self.result), "found": self.found, "remedy": self.remedy}


def ok(subject: str, found: str, remedy: str = "") -> Finding:
    """A finding without a problem."""
    return Finding(subject, FindingResult.OK, found, remedy)


def problem(subject: str, found: str, remedy: str) -> Finding:
    """A finding with a problem, and what to do about it."""
    return Finding(subject, FindingResult.PROBLEM, found, remedy)


def unknown(subject: str, found: str, remedy: str = "") -> Finding:
    """What could not be checked."""
    return Finding(subject, FindingResult.UNKNOWN, found, remedy)
