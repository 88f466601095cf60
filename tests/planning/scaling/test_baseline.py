"""The baseline inter-token latency survives restarts of the operator, with few writes."""

import pytest

from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.baseline import best_baseline, known_baseline

NOTED = ScalerState(revision="r1", baseline_microseconds=10_000)


@pytest.mark.parametrize(
    ("scaler", "revision", "seen", "carried"),
    [
        (None, "r1", {}, None),
        (None, "r1", {"r0": 0.01, "r1": 0.02}, 20_000),
        (NOTED, "r1", {}, 10_000),  # an operator that has just started has measured nothing
        (NOTED, "r1", {"r1": 0.03}, 10_000),
        (NOTED, "r1", {"r1": 0.0098}, 10_000),  # hardly better
        (NOTED, "r1", {"r1": 0.008}, 8_000),
        (NOTED, "r2", {"r1": 0.01, "r2": 0.03}, 30_000),
        (NOTED, "r2", {}, None),
        (None, "r1", {"r1": 1e-7}, 1),
    ],
)
def test_the_best_of_the_revision_is_carried(
    scaler: ScalerState | None, revision: str, seen: dict[str, float], carried: int | None
) -> None:
    assert best_baseline(scaler, revision, seen) == carried


def test_a_baseline_of_zero_is_none() -> None:
    assert known_baseline(ScalerState(revision="r1", baseline_microseconds=0), "r1") is None
