import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.presets import PRESETS


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_a_preset_is_what_the_hpa_api_accepts(role: Role) -> None:
    preset = PRESETS[role]
    behavior = preset.behavior()
    assert 0 < preset.target_milli <= 1000, "a target above a whole pod is never reached without a queue"
    assert preset.target == f"{preset.target_milli}m"
    for direction in ("scaleUp", "scaleDown"):
        rules = behavior[direction]
        assert 0 <= rules["stabilizationWindowSeconds"] <= 3600
        assert rules["selectPolicy"] == "Max"
        assert rules["policies"]
        for policy in rules["policies"]:
            assert policy["type"] in {"Percent", "Pods"}
            assert policy["value"] > 0
            assert 0 < policy["periodSeconds"] <= 1800


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_going_up_is_faster_than_going_down(role: Role) -> None:
    preset = PRESETS[role]
    assert preset.scale_up.stabilization_seconds < preset.scale_down.stabilization_seconds


def test_p_lets_go_of_pods_later_than_d() -> None:
    p, d = (PRESETS[role].scale_down for role in (Role.PARAMETER, Role.DECODE))
    assert p.stabilization_seconds > d.stabilization_seconds
    assert p.policies == d.policies
