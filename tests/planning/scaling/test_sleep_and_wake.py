"""A resource sleeps only if it is known that there are no requests."""

import pytest

from pdinference.planning.scaling.sleep_and_wake import ReportedActivity, seconds_until_sleep, sleeps

IDLE, HELD = ReportedActivity(held=False, idle_seconds=1000), ReportedActivity(held=True, idle_seconds=0)


@pytest.mark.parametrize(
    ("activity", "sleeping"),
    [
        (IDLE, True),
        (ReportedActivity(held=False, idle_seconds=900), True),
        (ReportedActivity(held=False, idle_seconds=899), False),
        (HELD, False),
        (None, False),
    ],
)
def test_it_falls_asleep_when_no_request_came_for_so_long(activity: ReportedActivity | None, *, sleeping: bool) -> None:
    assert sleeps(900, asleep=False, settled=True, activity=activity) is sleeping


@pytest.mark.parametrize(("activity", "sleeping"), [(IDLE, True), (HELD, False), (None, True)])
def test_only_a_request_that_waits_wakes_it(activity: ReportedActivity | None, *, sleeping: bool) -> None:
    assert sleeps(900, asleep=True, settled=True, activity=activity) is sleeping


@pytest.mark.parametrize("asleep", [False, True])
def test_routers_that_are_not_ready_wake_p_and_d(*, asleep: bool) -> None:
    assert not sleeps(900, asleep=asleep, settled=False, activity=IDLE)


def test_the_next_reconcile_is_when_p_and_d_may_sleep() -> None:
    assert seconds_until_sleep(900, ReportedActivity(held=False, idle_seconds=880)) == 20
    assert seconds_until_sleep(900, IDLE) == 1
    assert seconds_until_sleep(900, None) is None
