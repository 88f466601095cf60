"""Which rules hold in which `spec.mode`: without P, those between P and D do not apply."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.validation import InvalidResourceError, validated

Make = Callable[..., dict[str, Any]]
CPU = {"accelerator": {"type": "CPU"}}
SCALED = {"autoscaling": {"minReplicas": 1, "maxReplicas": 4}}
ONLY_WITHOUT_P: dict[str, dict[str, Any]] = {
    "fewer ranks of D": {"parameter": {"parallelism": {"tensor": 2}}},
    "a connector for GPUs": {"transfer": {"connector": "Mooncake", "mooncake": {"protocol": "tcp"}}, "decode": CPU},
    "the ratio of one role": {"decode": SCALED, "autoscaling": {"ratio": {"min": {"parameter": 1}}}},
    "a budget for D": {"decode": {"replicas": 2}, "autoscaling": {"gpuBudget": 2}},
    "sleep of one role": {"decode": SCALED, "autoscaling": {"scaleToZero": {}}},
}
IN_NO_MODE: dict[str, dict[str, Any]] = {
    "spec.parameter.nodePools": {"parameter": {"nodePools": [{}]}},
    "spec.parameter.replicas": {"parameter": {"replicas": -1}},
    "spec.decode.parallelism.pipeline": {"decode": {"parallelism": {"pipeline": 2}}},
    "spec.autoscaling.gpuBudget": {"decode": {"replicas": 3}, "autoscaling": {"gpuBudget": 2}},
    "spec.autoscaling.scaleToZero": {"parameter": SCALED, "autoscaling": {"scaleToZero": {}}},
}


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
