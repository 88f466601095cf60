"""`spec.mode`: whether P computes the prompts, or D does both.

Tests: tests/api/test_mode.py
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from pdinference.api.v1alpha1.base import Rule

Mode = Literal["Disaggregated", "Aggregated"]


def of_the_pair(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules between P and D, which do not apply without P."""
    return tuple(
        replace(rule, cel=f"self.mode == 'Aggregated' || ({rule.cel})", holds=_unless_aggregated(rule))
        for rule in rules
    )


def _unless_aggregated(rule: Rule) -> Any:
    return lambda spec: spec.mode == "Aggregated" or rule.holds(spec)
