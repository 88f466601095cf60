"""The HPA algorithm compared with Kubernetes' documentation (Horizontal Pod Autoscaling, "Algorithm details")."""

from itertools import pairwise
from typing import Any

import pytest

from benchmarks.autoscaling.hpa import Hpa, Target, replicas_for
from pdinference.api.names import Role
from pdinference.planning.scaling.presets import PRESETS

UNLIMITED = {"policies": [{"type": "Percent", "value": 100_000, "periodSeconds": 15}]}


def behavior(*, up: dict[str, Any] | None = None, down: dict[str, Any] | None = None) -> dict[str, Any]:
    at_once = {"stabilizationWindowSeconds": 0}
    everything_down = {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    return {"scaleUp": at_once | UNLIMITED | (up or {}), "scaleDown": at_once | everything_down | (down or {})}


def hpa(*, most: int = 1000, least: int = 1, **rules: dict[str, Any]) -> Hpa:
    return Hpa(least, most, [Target("load", 1.0)], behavior(**rules))


@pytest.mark.parametrize(
    ("total", "target", "current", "wanted"),
    [
        (200, 100, 1, 2),  # twice the target: twice the pods
        (100, 100, 2, 1),  # half of it: half
        (329, 100, 3, 3),  # within the tolerance of 10 %
        (331, 100, 3, 4),
        (270, 100, 3, 3),
        (269, 100, 3, 3),  # outside, but rounded up
        (199, 100, 3, 2),
        (2.3, 0.8, 1, 3),
    ],
)
def test_replicas_are_total_by_target_rounded_up_beyond_the_tolerance(
    total: float, target: float, current: int, wanted: int
) -> None:
    assert replicas_for(total, target, current) == wanted


def test_of_several_metrics_the_highest_counts() -> None:
    scaler = Hpa(1, 100, [Target("a", 1), Target("b", 1)], behavior())
    assert scaler.sync(0, 2, {"a": 3, "b": 7}) == 7


def test_an_unknown_metric_stops_scaling_down_but_not_up() -> None:
    scaler = Hpa(1, 100, [Target("a", 1), Target("b", 1)], behavior())
    assert scaler.sync(0, 5, {"a": 1, "b": None}) == 5
    assert scaler.sync(15, 5, {"a": 8, "b": None}) == 8
    assert scaler.sync(30, 8, {"a": None, "b": None}) == 8


def test_no_pods_means_off() -> None:
    assert hpa().sync(0, 0, {"load": 50}) == 0


def test_minimum_and_maximum_are_kept() -> None:
    assert hpa(least=2, most=4).sync(0, 3, {"load": 90}) == 4
    assert hpa(least=2, most=4).sync(0, 3, {"load": 0}) == 2
    assert hpa(least=2, most=4).sync(0, 9, {"load": 90}) == 4
    assert hpa(least=2, most=4).sync(0, 1, {"load": 90}) == 2


def test_of_two_policies_the_one_that_allows_more_holds() -> None:
    """The documentation's example: down by at most 4 pods or 10 % a minute, from 80 pods."""
    down = {
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 60},
            {"type": "Percent", "value": 10, "periodSeconds": 60},
        ]
    }
    scaler = hpa(down=down)
    counts = [80]
    for minute in range(30):
        counts.append(scaler.sync(60.0 * minute, counts[-1], {"load": 1}))
    assert counts[:4] == [80, 72, 64, 57]
    below_forty = [before - after for before, after in pairwise(counts) if 5 < before <= 40]
    assert set(below_forty) == {4}, "at 40 pods or fewer, four pods are more than 10 %"
    slow = hpa(down=down | {"selectPolicy": "Min"})
    assert slow.sync(0, 80, {"load": 1}) == 76


def test_a_policy_counts_what_was_done_within_its_period() -> None:
    scaler = hpa(up={"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]})
    assert scaler.sync(0, 2, {"load": 4}) == 4
    assert scaler.sync(15, 4, {"load": 50}) == 6
    assert scaler.sync(30, 6, {"load": 50}) == 6
    assert scaler.sync(60, 6, {"load": 50}) == 8, "the first two are a minute old"


def test_a_direction_can_be_disabled() -> None:
    assert hpa(down={"selectPolicy": "Disabled"}).sync(0, 5, {"load": 1}) == 5


def test_down_follows_the_most_of_the_window() -> None:
    scaler = hpa(down={"stabilizationWindowSeconds": 300})
    assert scaler.sync(0, 10, {"load": 10}) == 10
    for now in range(15, 300, 15):
        assert scaler.sync(now, 10, {"load": 2}) == 10
    assert scaler.sync(300, 10, {"load": 3}) == 3


def test_the_pods_that_it_finds_count_as_asked_for() -> None:
    """The controller notes them when it first sees an HPA, so it does not go down before the window is over."""
    scaler = hpa(down={"stabilizationWindowSeconds": 300})
    for now in range(0, 300, 15):
        assert scaler.sync(now, 4, {"load": 1}) == 4
    assert scaler.sync(300, 4, {"load": 1}) == 1


def _back(role: Role, *, lasts: int, until: int) -> list[tuple[int, int]]:
    """When the preset of a role gives pods back, and how many it keeps, after a burst that asks for 6 instead of 2."""
    preset = PRESETS[role]
    scaler = Hpa(1, 16, [Target("load", max(preset.targets.values()) / 1000)], preset.behavior)
    pods, steps = 2, []
    for now in range(0, until, 15):
        before, pods = pods, scaler.sync(now, pods, {"load": 5.4 if now < lasts else 1.5})
        if pods < before:
            steps.append((now - lasts, pods))
    return steps


def test_p_gives_back_one_pod_at_a_time() -> None:
    assert _back(Role.PARAMETER, lasts=120, until=1500) == [(285, 5), (585, 4), (885, 3), (1185, 2)]


def test_d_gives_back_at_once_what_came_in_the_last_five_minutes() -> None:
    """A policy counts from the pods that there were when its period began: so does Kubernetes."""
    assert _back(Role.DECODE, lasts=120, until=1500) == [(105, 2)]
    assert _back(Role.DECODE, lasts=600, until=2100) == [(105, 5), (405, 4), (705, 3), (1005, 2)]


def test_up_follows_the_least_of_its_window() -> None:
    scaler = hpa(up={"stabilizationWindowSeconds": 60})
    assert scaler.sync(0, 2, {"load": 2}) == 2
    assert scaler.sync(15, 2, {"load": 9}) == 2
    assert scaler.sync(60, 2, {"load": 6}) == 6


def test_the_default_doubles_or_adds_four() -> None:
    up = {
        "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15},
            {"type": "Pods", "value": 4, "periodSeconds": 15},
        ]
    }
    assert hpa(up=up).sync(0, 1, {"load": 90}) == 5
    assert hpa(up=up).sync(0, 9, {"load": 90}) == 18


def test_loads_use_current_pods_and_rates_use_requested_pods() -> None:
    one_down = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}]}
    assert hpa(down=one_down).sync(0, 8, {"load": 4.0}, live=4) == 7
    assert hpa().sync(0, 8, {"load": 4.2}, live=4) == 4, "within the tolerance of the pods that there are"
