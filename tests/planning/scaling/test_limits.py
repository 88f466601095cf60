"""What a spec says of P and D together."""

from fractions import Fraction
from typing import Any

import pytest
from pdinference.planning.scaling.limits import Limits
from pdinference.planning.scaling.replicas import ScaleRange

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.planning.scaling.ratio import Ratio

P, D = Role.PARAMETER, Role.DECODE
SCALED = {"autoscaling": {"minReplicas": 2, "maxReplicas": 10}}


def limits(p: Any = SCALED, d: Any = SCALED, together: Any = None, **spec: Any) -> Limits | None:
    own = {} if together is None else {"autoscaling": together}
    document = {"model": {"source": {"path": "/m"}}, "parameter": p, "decode": d, **own, **spec}
    return Limits.of(Spec.model_validate(document))


@pytest.mark.parametrize(
    ("band", "ratio"),
    [
        ({"min": {"parameter": 1, "decode": 4}}, Ratio(Fraction(1, 4), None)),
        ({"max": {"parameter": 3, "decode": 2}}, Ratio(None, Fraction(3, 2))),
        (
            {"min": {"parameter": 2, "decode": 4}, "max": {"parameter": 4, "decode": 2}},
            Ratio(Fraction(1, 2), Fraction(2)),
        ),
    ],
)
def test_both_ends_of_the_ratio_are_p_for_one_d(band: Any, ratio: Ratio) -> None:
    found = limits(together={"ratio": band})
    assert found is not None
    assert (found.ratio, found.budget) == (ratio, None)


@pytest.mark.parametrize(("strategy", "recreates"), [("BlueGreen", False), ("Recreate", True)])
def test_the_strategy_says_whether_two_pairs_are_counted(strategy: str, recreates: bool) -> None:
    found = limits(together={"gpuBudget": 8}, rollout={"strategy": strategy})
    assert found is not None
    assert found.recreates is recreates


def test_each_role_has_its_own_gpus_and_counts() -> None:
    d = {"replicas": 3, "parallelism": {"tensor": 4}}
    found = limits(p={"parallelism": {"tensor": 2}, **SCALED}, d=d, together={"gpuBudget": 40})
    assert found is not None
    assert found.gpus == {P: 2, D: 4}
    assert found.counts == {P: ScaleRange(1, 2, 10), D: ScaleRange(3, 3, 3)}
    assert found.scaled == {P}


def test_a_spec_without_budget_and_ratio_sets_no_limits() -> None:
    assert limits() is None
