"""Loads are remembered for minutes, and roles that look ahead get the expected load."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.loads import Loads
from pdinference.loadmetrics.rises import Rises
from pdinference.loadmetrics.signals import SignalMeasurement
from pdinference.planning.scaling.signals import Signal
from tests.loadmetrics.test_gauges import Pods

OWNER = Owner("ns", "llama")
KEY = OWNER, Role.DECODE, Signal.DECODE_LOAD


def asked(rises: Rises, times: range, start: float = 90.0) -> float:
    """The last of the expected loads, of a load that rises by 1 in 100 s."""
    return [rises.expected(KEY, 2 + now / 100, now=float(now), start_seconds=start) for now in times][-1]


def test_a_rise_is_followed_however_often_one_asks() -> None:
    for every in (1, 5, 15, 60):
        assert asked(Rises(), range(0, 601, every)) == pytest.approx(2 + 6.9)


def test_a_resource_keeps_few_numbers() -> None:
    rises = Rises()
    asked(rises, range(2000))
    assert len(rises._seen[KEY]) <= 31


def test_after_a_gap_nothing_is_known() -> None:
    rises = Rises()
    asked(rises, range(0, 600, 15))
    assert rises.expected(KEY, 8.0, now=800, start_seconds=90) == 8.0


def test_what_nobody_asks_for_is_forgotten() -> None:
    rises = Rises()
    asked(rises, range(0, 600, 15))
    other = Owner("ns", "other"), Role.DECODE, Signal.DECODE_LOAD
    rises.expected(other, 1.0, now=5000, start_seconds=90)
    assert rises._seen.keys() == {other}


@pytest.mark.parametrize(
    ("ahead", "start", "signal", "follows"),
    [
        (True, 90.0, Signal.DECODE_LOAD, True),
        (False, 90.0, Signal.DECODE_LOAD, False),
        (True, None, Signal.DECODE_LOAD, False),
        (True, 90.0, Signal.KV_USAGE, False),
    ],
)
def test_roles_look_ahead_by_the_starts_that_were_seen(
    monkeypatch: pytest.MonkeyPatch, *, ahead: bool, start: float | None, signal: Signal, follows: bool
) -> None:
    pods = Pods()
    pods.serve("llama", "ns", Role.DECODE, decode={"autoscaling": {"maxReplicas": 4, "lookAhead": ahead}})
    loads = Loads(pods.scraper, pods.gauges._policies, lambda _owner, _role: start, clock=lambda: pods.now)

    def present(*_: Any, **__: Any) -> SignalMeasurement:
        return SignalMeasurement((pods.now - 1000) / 100 + 2, datetime.now(UTC))

    monkeypatch.setattr("pdinference.loadmetrics.loads.measure", present)
    for _ in range(40):
        found = loads.measured(OWNER, Role.DECODE, signal).value
        pods.now += 15
    assert found == pytest.approx(2 + 39 * 0.15 + (0.9 if follows else 0))
