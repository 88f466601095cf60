"""Contradictory limits of P and D, reported with the same message by schema and checks."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.checks import examine
from pdinference.manifests import RenderSettings
from tests.conftest import together

Make = Callable[..., dict[str, Any]]


def problems(document: dict[str, Any]) -> dict[str, str]:
    return {problem.field: problem.message for problem in examine(document, RenderSettings()).problems}


@pytest.mark.parametrize(
    "spec",
    [
        together(gpuBudget=2),
        together(ratio={"min": {"decode": 3}, "max": {}}, gpuBudget=8),
        together(p={"minReplicas": 4}, ratio={"max": {"parameter": 3, "decode": 2}}),
        {"autoscaling": {"gpuBudget": 2}},
        {"autoscaling": {"gpuBudget": 1}, "decode": {"accelerator": {"type": "CPU"}}},
        {"autoscaling": {}},
    ],
)
def test_limits_that_can_be_kept(document: Make, spec: dict[str, Any]) -> None:
    assert problems(document(**spec)) == {}


def test_the_fewest_pods_have_to_fit_into_the_budget(document: Make) -> None:
    spec = together(p={"minReplicas": 2}, gpuBudget=5)
    spec = {**spec, **{role: {**spec[role], "parallelism": {"tensor": 2}} for role in ("parameter", "decode")}}
    assert problems(document(**spec)).keys() == {"spec.autoscaling.gpuBudget"}


def test_the_smallest_pair_within_the_ratio_has_to_be_allowed(document: Make) -> None:
    """5 P need 3 D for a ratio of at most 2, and 3 D need 6 P for one of at least 2."""
    band = {"min": {"parameter": 2}, "max": {"parameter": 2}}
    found = problems(document(**together(p={"minReplicas": 5, "maxReplicas": 5}, ratio=band)))
    assert found.keys() == {"spec.autoscaling.ratio"}
    assert "needs at least 6 P and 3 D pods, but maxReplicas allows 5 P and 4 D" in found["spec.autoscaling.ratio"]


def test_and_fit_into_the_budget(document: Make) -> None:
    found = problems(document(**together(ratio={"min": {"parameter": 3}}, gpuBudget=3)))
    assert found.keys() == {"spec.autoscaling.gpuBudget"}
    assert "at least 3 P and 1 D pods with 4 GPUs" in found["spec.autoscaling.gpuBudget"]


def test_a_ratio_that_no_numbers_keep_is_refused_and_not_searched_for(document: Make) -> None:
    band = {"min": {"parameter": 2, "decode": 4}, "max": {"parameter": 4, "decode": 70}}
    assert "spec.autoscaling.ratio.max" in problems(document(**together(ratio=band)))
