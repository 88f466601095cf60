"""The status while the stored spec is invalid, with and without a last valid one."""

from dataclasses import replace

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Status
from pdinference.memory import NO_VERDICT
from pdinference.planning.status import left_alone_status
from pdinference.planning.transitions import transitions
from tests.planning.statuses import NOW, SERVING, built, conditions


def left_alone(previous: Status) -> Status:
    return left_alone_status("spec.x: wrong", NO_VERDICT, generation=4, previous=previous, now=NOW)


def test_progressing_reports_the_stored_spec_others_the_last_valid() -> None:
    before = built(SERVING)
    status = built(replace(SERVING, generation=4, invalid="spec.x: wrong"), previous=before)
    found, earlier = dict(conditions(status)), conditions(before)
    progressing = found.pop("Progressing")
    assert (progressing.status, progressing.reason, progressing.message) == ("False", "InvalidSpec", "spec.x: wrong")
    assert {name: (c.status, c.reason) for name, c in found.items()} == {
        name: (c.status, c.reason) for name, c in earlier.items() if name != "Progressing"
    } | {"Stalled": ("True", "InvalidSpec")}
    assert found["Ready"].status == "True"
    assert status.observed_generation == 4
    assert [event.reason for event in transitions(before, status)] == ["InvalidSpec"]


def test_a_resource_without_a_valid_spec_is_neither_ready_nor_not() -> None:
    before = built(SERVING)
    status = left_alone(before)
    found = conditions(status)
    assert (found["Progressing"].status, found["Progressing"].reason) == ("False", "InvalidSpec")
    for name in ("Ready", "ParameterReady", "DecodeReady", "RouterReady"):
        assert (found[name].status, found[name].reason) == ("Unknown", "InvalidSpec")
    assert (status.revision, status.serving_revision, status.observed_generation) == ("r1", "r1", 4)
    assert (status.url, status.roles) == (before.url, before.roles)
    assert left_alone(status) == status


def test_autoscaling_of_a_resource_without_a_valid_spec_is_unknown() -> None:
    scaled = built(replace(SERVING, autoscalers={Role.DECODE: None}))
    assert conditions(scaled)["Autoscaling"].reason != "InvalidSpec"
    assert conditions(left_alone(scaled))["Autoscaling"].status == "Unknown"


def test_an_invalid_spec_that_never_ran_is_not_ready() -> None:
    status = left_alone(Status())
    assert conditions(status)["Ready"].status == "False"
    assert conditions(status).keys() == {"Ready", "Progressing", "Stalled", "MemoryFits"}
