"""Which rules hold in which `spec.mode`: without P, those between P and D do not apply."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.validation import InvalidResourceError, validated
from tests.api.modes import CPU, IN_NO_MODE, ONLY_WITHOUT_P

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("spec", ONLY_WITHOUT_P.values(), ids=ONLY_WITHOUT_P)
def test_a_rule_between_p_and_d_needs_p(document: Make, spec: dict[str, Any]) -> None:
    assert validated(document(**spec, mode="Aggregated")).spec.engine_roles == (Role.DECODE,)
    with pytest.raises(InvalidResourceError):
        validated(document(**spec))


@pytest.mark.parametrize("field", IN_NO_MODE)
@pytest.mark.parametrize("mode", ["Disaggregated", "Aggregated"])
def test_other_rules_hold_in_both_modes(document: Make, field: str, mode: str) -> None:
    """Also those of P alone, so that one line changes the mode."""
    with pytest.raises(InvalidResourceError) as caught:
        validated(document(**IN_NO_MODE[field], mode=mode))
    assert [problem.field for problem in caught.value.problems] == [field]


def test_a_budget_needs_gpus_of_a_role_that_there_is(document: Make) -> None:
    with pytest.raises(InvalidResourceError, match="No role has GPUs"):
        validated(document(decode=CPU, autoscaling={"gpuBudget": 2}, mode="Aggregated"))


def test_p_and_d_are_the_default(document: Make) -> None:
    assert validated(document()).spec.engine_roles == ENGINE_ROLES
