"""Who counts pods, and how many."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import RoleSpec
from pdinference.api.v1alpha1.autoscaling import Autoscaling
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.replicas import ScaleRange, WantedCount, scaled_revision, wanted_count
from pdinference.planning.scaling.targets import targets_milli

RANGE = ScaleRange(initial=2, minimum=1, maximum=6)


@pytest.mark.parametrize(
    ("live", "serving", "followed", "count"),
    [
        (0, 0, False, 2),  # the first revision
        (4, 0, False, 4),  # it starts, and nobody else serves
        (0, 5, False, 5),  # a new one beside one that serves
        (3, 5, False, 5),  # which has grown meanwhile
        (5, 9, False, 6),  # never more than allowed
        (4, 0, True, 4),
        (0, 0, True, 2),
    ],
)
def test_the_wanted_count(live: int, serving: int, followed: bool, count: int) -> None:
    assert wanted_count(RANGE, live=live, serving=serving, followed=followed) == WantedCount(count, followed)


def test_where_an_hpa_decides_only_zero_is_wrong() -> None:
    wanted = WantedCount(2, followed=True)
    assert wanted.met_by(1)
    assert wanted.met_by(6)
    assert not wanted.met_by(0)


def test_elsewhere_the_count_is_the_count() -> None:
    assert WantedCount(2, followed=False).met_by(2)
    assert not WantedCount(2, followed=False).met_by(3)


def test_zero_replicas_turn_autoscaling_off() -> None:
    scaling = Autoscaling(max_replicas=4)
    assert ScaleRange.of(RoleSpec(replicas=0, autoscaling=scaling)) is None
    assert ScaleRange.of(RoleSpec(replicas=1)) is None
    assert ScaleRange.of(RoleSpec(replicas=3, autoscaling=scaling)) == ScaleRange(3, 1, 4)


@pytest.mark.parametrize(
    ("serving", "exists", "routed", "followed"),
    [("a", True, True, "a"), ("a", False, True, ""), ("", False, True, ""), ("", False, False, "b")],
)
def test_hpas_follow_what_serves(serving: str, exists: bool, routed: bool, followed: str) -> None:
    plan = RolloutPlan(serving=serving, complete=False, keep=None)
    assert scaled_revision(plan, "b", serving_exists=exists, routed=routed) == followed


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
def test_without_targets_there_is_the_preset(role: Role) -> None:
    assert targets_milli(role, Autoscaling(max_replicas=2)) == PRESETS[role].targets


def test_with_metrics_of_the_users_own_there_is_none() -> None:
    metric: dict[str, Any] = {"type": "Resource", "resource": {"name": "cpu"}}
    assert targets_milli(Role.DECODE, Autoscaling(max_replicas=2, metrics=[metric])) == {}


def test_targets_are_in_thousandths() -> None:
    given = Autoscaling.model_validate({"maxReplicas": 2, "targets": {"kvDemand": 80, "queuedPromptTokens": 8000}})
    found = {str(signal): milli for signal, milli in targets_milli(Role.DECODE, given).items()}
    assert found == {"pdinference_kv_demand": 800, "pdinference_queued_prompt_tokens": 8_000_000}
