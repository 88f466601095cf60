"""The memory plan's answer for a resource as a whole.

Tests: tests/planning/test_status.py, tests/checks/test_memory.py
"""

from dataclasses import dataclass

from pdinference.api.v1alpha1 import PlanStatus
from pdinference.api.validation import Problem
from pdinference.memory.moved import Moved


@dataclass(frozen=True)
class MemoryVerdict:
    """The result of the memory plan.

    Attributes:
        fits: None when unknown.
        message: Why, for a condition.
        problems: Models that do not fit, if the policy rejects them.
        warnings: Models that do not fit, if the policy allows them; a small KV cache of D.
        status: The plan's numbers; None without facts.
        moved: The KV cache that moves from P to D; empty where none does, or without facts.
    """

    fits: bool | None
    message: str
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    status: PlanStatus | None = None
    moved: tuple[Moved, ...] = ()


NO_VERDICT = MemoryVerdict(None, "The memory plan waits for a valid resource.")
