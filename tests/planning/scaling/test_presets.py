import pytest

from benchmarks.autoscaling.hpa import replicas_for
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.decode_load import DecodeWindow
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.signals import Signal


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_going_up_is_faster_than_going_down(role: Role) -> None:
    """And a target above a whole pod would never be reached without a queue."""
    preset = PRESETS[role]
    assert all(0 < milli <= 1000 for milli in preset.targets.values())
    up, down = preset.behavior["scaleUp"], preset.behavior["scaleDown"]
    assert up["stabilizationWindowSeconds"] < down["stabilizationWindowSeconds"]


def test_p_lets_go_of_pods_later_than_d() -> None:
    p, d = (PRESETS[role].behavior["scaleDown"] for role in (Role.PARAMETER, Role.DECODE))
    assert p["stabilizationWindowSeconds"] > d["stabilizationWindowSeconds"]
    assert p["policies"] == d["policies"]


def test_a_full_kv_cache_brings_a_d_pod_and_a_busy_d_pod_is_not_full() -> None:
    """Usage ends at 1, and an HPA ignores 10 %. Where bandwidth limits a pod, it is at its load long before."""
    targets = PRESETS[Role.DECODE].targets
    usage, load = targets[Signal.KV_USAGE] / 1000, targets[Signal.DECODE_LOAD] / 1000
    assert replicas_for(1.0, usage, current=1) == 2
    # An 8B model on an H200: a token takes eight times as long with a full cache as in an idle pod.
    used = next(percent / 100 for percent in range(100) if _bandwidth_bound(percent / 100) >= load)
    assert used < usage


def _bandwidth_bound(used: float) -> float:
    pod = DecodeWindow(30, used, 0.0044 * (1 + 7.3 * used), 1000, 10, 1000, 0)
    return pod.load(0.0044)
