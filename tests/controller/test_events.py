"""Events are written once, counted when they repeat, and limited in rate."""

import pytest

from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import Owner
from pdinference.controller import events
from pdinference.controller.events import EventRecorder
from pdinference.controller.metrics import Metrics
from pdinference.planning.transitions import Transition
from tests.cluster.fake_api import FakeApi

OWNER = Owner("ns", "llama")
READY = Transition("Normal", "Ready", "Requests are answered.")
EVENTS = "/apis/events.k8s.io/v1/namespaces/ns/events"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(api: FakeApi, clock: Clock) -> EventRecorder:
    return EventRecorder(api, Metrics(), instance="me", clock=clock)


async def test_an_event_regards_the_resource(api: FakeApi, recorder: EventRecorder) -> None:
    await recorder.record(OWNER, "cr-1", READY)
    (event,) = api.objects.values()
    assert event["regarding"]["uid"] == "cr-1"
    assert (event["type"], event["reason"], event["note"]) == READY


async def test_a_repetition_raises_the_count_after_a_while(api: FakeApi, clock: Clock, recorder: EventRecorder) -> None:
    for _ in range(3):
        await recorder.record(OWNER, "cr-1", READY)
    assert api.writes() == 1
    clock.now = 700
    await recorder.record(OWNER, "cr-1", READY)
    (event,) = api.objects.values()
    assert event["series"]["count"] == 4


async def test_an_event_that_expired_is_written_anew(api: FakeApi, clock: Clock, recorder: EventRecorder) -> None:
    await recorder.record(OWNER, "cr-1", READY)
    api.objects.clear()
    clock.now = 4000
    await recorder.record(OWNER, "cr-1", READY)
    assert len(api.objects) == 1


async def test_a_resource_that_flaps_runs_out_of_events(api: FakeApi, recorder: EventRecorder) -> None:
    for number in range(100):
        await recorder.record(OWNER, "cr-1", Transition("Warning", "NotReady", f"try {number}"))
    assert api.writes() == 20
    await recorder.record(OWNER, "cr-2", READY)
    assert api.writes() == 21


async def test_an_event_that_is_refused_does_no_harm(api: FakeApi, recorder: EventRecorder) -> None:
    api.fail("create", EVENTS, ApiError(403, "Forbidden", "namespace is being terminated"))
    await recorder.record(OWNER, "cr-1", READY)
    assert api.objects == {}


async def test_budgets_are_limited_in_number_though_no_event_can_be_written(
    api: FakeApi, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_REMEMBERED", 3)
    for number in range(10):
        api.fail("create", EVENTS, ApiError(403, "Forbidden", "no"))
        await recorder.record(OWNER, f"cr-{number}", READY)
    assert len(recorder._budgets) == 3


async def test_a_long_note_is_cut_to_what_the_api_takes(api: FakeApi, recorder: EventRecorder) -> None:
    await recorder.record(OWNER, "cr-1", Transition("Warning", "X", "n" * 5000))
    (event,) = api.objects.values()
    assert len(event["note"]) == 1024
