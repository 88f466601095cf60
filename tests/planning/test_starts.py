"""How long pods took to start, in the status."""

from datetime import UTC, datetime, timedelta

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.status import StartPhases, StartStatus
from pdinference.planning.observed import PodSummary
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from pdinference.planning.status.build import build_status
from pdinference.planning.status.starts import start_status
from tests.planning.statuses import SERVING, having

DAY = datetime(2026, 11, 29, 10, tzinfo=UTC)


def at(seconds: float) -> str:
    return (DAY + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def pod(name: str, created: float, ready: float | None, **facts: object) -> PodSummary:
    since = "" if ready is None else at(ready)
    known = {"role": Role.DECODE, "revision": "r", **facts}
    return PodSummary(name, created=at(created), ready_since=since, ready=ready is not None, **known)  # type: ignore[arg-type]


def counted(*pods: PodSummary, before: StartStatus | None = None, now: float = 200) -> tuple[int, int] | None:
    found = start_status(pods, Role.DECODE, before, DAY + timedelta(seconds=now))
    return None if found is None else (found.last_seconds, found.typical_seconds)


def test_the_last_pod_and_what_is_typical() -> None:
    assert counted(pod("a", 0, 60), pod("b", 100, 140)) == (40, 54), "0.7 x 60 + 0.3 x 40"
    assert counted() is None


def test_the_phases_of_the_last_pod_and_typical_ones() -> None:
    def phased(name: str, created: int, *until: int) -> PodSummary:
        scheduled, started, ready = (created + seconds for seconds in until)
        return pod(name, created, ready, scheduled=at(scheduled), engine_started=at(started))

    found = start_status([phased("a", 0, 0, 20, 60)], Role.DECODE, None, DAY + timedelta(seconds=61))
    assert found is not None
    assert found.last_phases == found.typical_phases == StartPhases(scheduling=0, preparation=20, engine=40)
    found = start_status([phased("b", 100, 10, 20, 60)], Role.DECODE, found, DAY + timedelta(seconds=161))
    assert found is not None
    assert found.last_phases == StartPhases(scheduling=10, preparation=10, engine=40)
    assert found.typical_phases == StartPhases(scheduling=3, preparation=17, engine=40)
    found = start_status([pod("c", 200, 260)], Role.DECODE, found, DAY + timedelta(seconds=261))
    assert found is not None
    assert (found.last_phases, found.typical_phases) == (None, StartPhases(scheduling=3, preparation=17, engine=40))


def test_a_time_of_no_start_is_in_no_phase() -> None:
    """A container runtime that knows no time says 1970."""
    odd = pod("a", 0, 60, scheduled="2040-01-01T00:00:00Z", engine_started="1970-01-01T00:00:00Z")
    found = start_status([odd], Role.DECODE, None, DAY + timedelta(seconds=61))
    assert found is not None
    assert found.last_phases == StartPhases(scheduling=60, preparation=0, engine=0)


def test_a_pod_counts_once() -> None:
    """Its condition may change later: after a short pause it is ready since then."""
    first = start_status([pod("a", 0, 60)], Role.DECODE, None, DAY + timedelta(seconds=61))
    assert counted(pod("a", 0, 9000), before=first, now=9001) == (60, 60)
    assert counted(before=first) == (60, 60), "it stays known while there are no pods"


def test_what_was_ready_long_ago_tells_nothing() -> None:
    """The operator was away, or is new: the pod may have become ready once more since its start."""
    assert counted(pod("a", 0, 9000), now=9700) is None


@pytest.mark.parametrize(
    "other",
    [
        pod("a", 0, None),
        pod("a", 0, 60, restarted=True),
        pod("a", 0, 60, node_rank=1),
        pod("a", 0, 60, role=Role.PARAMETER),
        PodSummary("a", Role.DECODE, "r", ready=True),
    ],
    ids=["not ready", "started again", "worker node", "other role", "no times"],
)
def test_others_do_not_count(other: PodSummary) -> None:
    assert counted(other) is None


def test_the_status_has_it_and_a_sleeping_model_says_how_long_it_will_take() -> None:
    pods = (*SERVING.pods, pod("p", 0, 61, role=Role.PARAMETER), pod("d", 0, 45))
    now = DAY + timedelta(seconds=100)
    status = build_status(having(SERVING, pods=pods), previous=Status(), now=now)
    assert status.roles.parameter.start is not None
    assert status.roles.parameter.start.typical_seconds == 61
    assert status.roles.router.start is None
    asleep = build_status(
        having(SERVING, asleep=True, activity=ReportedActivity(held=False, idle_seconds=900), pods=SERVING.pods),
        previous=status,
        now=now,
    )
    assert asleep.roles.decode.start == status.roles.decode.start
    (ready,) = (one for one in asleep.conditions if one.type == "Ready")
    assert ready.message.endswith("waits for them. Starts took 61 s lately."), ready
