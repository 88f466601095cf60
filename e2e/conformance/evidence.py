"""Evidence for one requirement, and the verdict that follows from it (pure)."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from e2e.conformance.checklist import Requirement


class Verdict(StrEnum):
    """What the evidence says of this cluster."""

    MET = "met"
    NOT_MET = "not met"
    NEEDS_ACCELERATOR = "needs an accelerator"
    NOT_SHOWN = "not shown here"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Observation:
    """Something that was to be true, and what was seen.

    Attributes:
        what: What was to be true.
        holds: Whether it was.
        seen: What was seen.
    """

    what: str
    holds: bool
    seen: str


@dataclass(frozen=True)
class Gap:
    """What keeps a requirement from being met although nothing failed.

    Attributes:
        verdict: Neither `MET` nor `NOT_MET`.
        why: A sentence.
    """

    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Evidence:
    """What was done and seen for a requirement.

    Attributes:
        requirement: The row of the checklist.
        observations: What was seen, in order.
        gap: What is missing; None if the observations are all that the requirement asks for.
        commands: What was run, in order.
        files: Raw objects and metrics, relative to the page.
    """

    requirement: Requirement
    observations: tuple[Observation, ...] = ()
    gap: Gap | None = None
    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """A failed observation counts more than a gap. Without observations, nothing was shown."""
        if not all(observation.holds for observation in self.observations):
            return Verdict.NOT_MET
        if self.gap is not None:
            return self.gap.verdict
        return Verdict.MET if self.observations else Verdict.NOT_SHOWN

    @property
    def why(self) -> str:
        """What was seen that should not be, else what is missing; empty if the requirement is met."""
        failed = next((observation for observation in self.observations if not observation.holds), None)
        if failed is not None:
            return f"{failed.what}: {failed.seen}"
        return self.gap.why if self.gap is not None else ""


NOT_REACHED = Gap(Verdict.NOT_SHOWN, "The run ended before this check.")


def complete(requirements: Iterable[Requirement], found: Iterable[Evidence]) -> list[Evidence]:
    """The evidence in the order of the checklist; requirements that were not reached have none."""
    by_id = {evidence.requirement.id: evidence for evidence in found}
    return [by_id.get(one.id, Evidence(one, gap=NOT_REACHED)) for one in requirements]
