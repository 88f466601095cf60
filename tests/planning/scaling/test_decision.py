"""The load that an Event names is the one that decided, or none."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pdinference.api.names import Role
from pdinference.planning.observed import AutoscalerState, Load, Verdict, WorkloadState
from pdinference.planning.scaling.decision import Change, reasons, unexplained

D = Role.DECODE
NAME = "x-decode-r1"
DECIDED = AutoscalerState(
    NAME,
    1,
    6,
    judged=True,
    replicas=1,
    desired=3,
    loads=(Load("pdinference_kv_demand", 30, 800),),
    active=Verdict("True", "ValidMetricFound"),
)
THREE = {D: WorkloadState(NAME, D, "r1", desired=3)}


def test_the_load_of_the_look_that_decided() -> None:
    assert reasons({D: DECIDED}, THREE) == {D: "kvDemand 240%/80%"}
    assert unexplained({D: DECIDED}, THREE, {D: 1}) == {}


@pytest.mark.parametrize(
    "hpa",
    [
        None,
        replace(DECIDED, desired=1),  # it has not said yet what it did, or somebody else did it
        replace(DECIDED, replicas=3),  # it has looked again since
        replace(DECIDED, workload="x-decode-r0"),
        replace(DECIDED, loads=(Load("pdinference_kv_demand", None, 800),)),
        replace(DECIDED, loads=()),
    ],
)
def test_any_other_load_is_no_reason(hpa: AutoscalerState | None) -> None:
    assert reasons({D: hpa}, THREE) == {}


def test_a_change_that_the_hpa_is_about_to_explain_is_waited_for() -> None:
    before = replace(DECIDED, desired=1)
    assert unexplained({D: before}, THREE, {D: 1}) == {D: 3}
    assert unexplained({D: before}, THREE, {D: 3}) == {}, "the status tells it already"
    assert unexplained({D: replace(before, active=None)}, THREE, {D: 1}) == {}, "it sees nothing that it could tell"
    assert unexplained({D: None}, THREE, {D: 1}) == {}


def test_nobody_waits_long() -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    change = Change({D: 3}, now)
    assert change.waits_until(now) == now + timedelta(seconds=1)
    assert change.waits_until(now + timedelta(seconds=1)) is None
    assert change.waits_until(now - timedelta(hours=1)) is None, "somebody has put the clock back"
