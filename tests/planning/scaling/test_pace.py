"""The pace of idle pods outlives operators, and costs few writes."""

import pytest

from pdinference.planning.observed import AutoscalerState, Pace
from pdinference.planning.scaling.pace import pace_for

NOTED = AutoscalerState("x-decode-r1", 1, 4, pace=Pace("r1", 0.01))


@pytest.mark.parametrize(
    ("hpa", "revision", "seen", "carried"),
    [
        (None, "r1", {}, None),
        (None, "r1", {"r0": 0.01, "r1": 0.02}, Pace("r1", 0.02)),
        (NOTED, "r1", {}, Pace("r1", 0.01)),  # an operator that has just started has seen nothing
        (NOTED, "r1", {"r1": 0.03}, Pace("r1", 0.01)),
        (NOTED, "r1", {"r1": 0.0098}, Pace("r1", 0.01)),  # hardly better
        (NOTED, "r1", {"r1": 0.008}, Pace("r1", 0.008)),
        (NOTED, "r2", {"r1": 0.01, "r2": 0.03}, Pace("r2", 0.03)),
        (NOTED, "r2", {}, None),
    ],
)
def test_the_best_of_the_revision_is_carried(
    hpa: AutoscalerState | None, revision: str, seen: dict[str, float], carried: Pace | None
) -> None:
    assert pace_for(hpa, revision, seen) == carried


def test_what_an_hpa_carries_can_be_read_again() -> None:
    assert Pace.read(Pace("r1", 0.01234).written()) == Pace("r1", 0.0123)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "nan seconds a token in r1",
        "inf seconds a token in r1",
        "0 seconds a token in r1",
        "1 seconds a token in ",
    ],
)
def test_what_somebody_else_wrote_is_nothing(text: str) -> None:
    assert Pace.read(text) is None
