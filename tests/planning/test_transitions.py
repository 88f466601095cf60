"""Events report each change once."""

from datetime import UTC, datetime
from typing import Literal

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Condition, RolesStatus, RoleStatus, Status
from pdinference.api.v1alpha1.conditions import INVALID, MODEL_READY
from pdinference.planning.condition_changes import ASLEEP
from pdinference.planning.model_report import CHECKED, NOT_CHECKED
from pdinference.planning.status.problems import SCALED_TO_ZERO
from pdinference.planning.transitions import transitions


def status(*, ready: str = "False", serving: str = "", revision: str = "r1", reason: str = "RollingOut") -> Status:
    now = datetime(2026, 11, 5, tzinfo=UTC)
    progressing = "True" if reason in {"RollingOut", "GpuBudget", "NotAllReady"} else "False"
    pairs = (("Ready", ready, "Why"), ("Progressing", progressing, reason))
    return Status(
        revision=revision,
        serving_revision=serving,
        conditions=[
            Condition.model_validate(
                {
                    "type": t,
                    "status": s,
                    "reason": r,
                    "message": "m",
                    "lastTransitionTime": now,
                    "observedGeneration": 1,
                }
            )
            for t, s, r in pairs
        ],
    )


def reasons(old: Status, new: Status) -> list[str]:
    return [transition.reason for transition in transitions(old, new)]


def test_a_new_resource_is_created_and_not_reported_as_broken() -> None:
    assert reasons(Status(), status()) == ["Created"]


def test_changes_of_readiness_are_events() -> None:
    up, down = status(ready="True", serving="r1"), status(serving="r1")
    assert reasons(status(), up) == ["RolloutFinished", "Ready"]
    assert reasons(up, down) == ["NotReady"]
    assert reasons(up, up) == []


def test_a_rollout_has_a_start_and_an_end() -> None:
    assert reasons(status(), status(revision="r2")) == ["RolloutStarted"]
    assert reasons(status(revision="r2", serving="r1"), status(revision="r2", serving="r2")) == ["RolloutFinished"]


def test_a_start_is_no_warning_and_names_the_revisions() -> None:
    for old, words in ((Status(), "Revision r2 is being created."), (status(), "Revision r2 replaces r1.")):
        (started,) = transitions(old, status(revision="r2"))
        assert (started.type, started.note) == ("Normal", words)


def test_what_stops_progress_is_a_warning_once() -> None:
    stuck = status(reason="NameConflict")
    found = list(transitions(status(), stuck))
    assert [(t.type, t.reason) for t in found] == [("Warning", "NameConflict")]
    assert reasons(stuck, stuck) == []


def autoscaling(reason: str, status: Literal["True", "False", "Unknown"] = "True") -> Status:
    now = datetime(2026, 11, 5, tzinfo=UTC)
    condition = Condition(
        type="Autoscaling", status=status, reason=reason, message="m", last_transition_time=now, observed_generation=1
    )
    return Status(conditions=[condition])


def test_an_unknown_load_is_a_warning_and_its_return_an_event() -> None:
    starts, follows = autoscaling("Starting", "Unknown"), autoscaling("Active")
    blind = autoscaling("FailedGetExternalMetric", "False")
    assert reasons(starts, blind) == reasons(follows, blind) == ["AutoscalingInactive"]
    assert reasons(blind, follows) == ["AutoscalingActive"]
    assert reasons(starts, follows) == reasons(blind, starts) == reasons(blind, blind) == []


def test_a_joint_limit_is_an_event_when_it_begins() -> None:
    assert reasons(autoscaling("Active"), autoscaling("GpuBudget")) == ["ScalingLimited"]
    assert reasons(autoscaling("GpuBudget"), autoscaling("Ratio")) == ["ScalingLimited"]
    assert reasons(autoscaling("Ratio"), autoscaling("Ratio")) == []
    assert reasons(autoscaling("Ratio"), autoscaling("Active")) == []


def test_a_rollout_that_waits_for_gpus_is_one_event() -> None:
    waits = status(reason="GpuBudget")
    assert reasons(status(), waits) == ["GpuBudget"]
    assert reasons(waits, waits) == []


def scaled(desired: int, *, replicas: int = 1) -> Status:
    role = RoleStatus(replicas=replicas, desired=desired, scaling="kvDemand 80%/80%; 1-6 pods")
    return Status(revision="r1", roles=RolesStatus(decode=role))


def test_a_changed_count_is_an_event_with_its_load() -> None:
    (event,) = transitions(scaled(1), scaled(3), loads={Role.DECODE: "kvDemand 200%/80%"})
    assert (event.reason, event.note) == (
        "ScaledUp",
        "decode: 1 to 3 pods. Load per pod/target: kvDemand 200%/80%.",
    )
    (event,) = transitions(scaled(3), scaled(1))
    assert (event.reason, event.note) == ("ScaledDown", "decode: 3 to 1 pods.")


def test_what_starts_or_stops_has_not_been_scaled() -> None:
    assert reasons(scaled(1, replicas=0), scaled(3, replicas=0)) == []
    assert reasons(scaled(1), scaled(0)) == []


def condition(type_: str, status: str, reason: str, message: str = "m") -> Status:
    found = {"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": 1}
    return Status(conditions=[Condition.model_validate({**found, "lastTransitionTime": "2026-11-05T00:00:00Z"})])


def test_sleep_and_waking_are_normal_events() -> None:
    ready, asleep, invalid, stopped, starts = (
        condition("Ready", status, reason)
        for status, reason in (
            ("True", "Ready"),
            ("False", ASLEEP),
            ("False", INVALID),
            ("False", SCALED_TO_ZERO),
            ("False", "Starting"),
        )
    )
    assert reasons(ready, asleep) == ["NotReady", "FellAsleep"]
    assert reasons(starts, asleep) == ["FellAsleep"]
    for sleeps in (asleep, invalid):
        assert reasons(sleeps, starts) == ["WokeUp"]
        assert reasons(sleeps, stopped) == []
        assert reasons(sleeps, sleeps) == []
    assert reasons(asleep, invalid) == reasons(invalid, asleep) == reasons(starts, stopped) == []
    assert reasons(starts, invalid) == reasons(Status(), asleep) == reasons(asleep, Status()) == []


def test_waking_is_no_loss_of_readiness() -> None:
    can_wake = condition("Ready", "True", ASLEEP)
    assert reasons(can_wake, condition("Ready", "False", "Starting")) == ["WokeUp"]
    for reason in (ASLEEP, SCALED_TO_ZERO):
        assert reasons(can_wake, condition("Ready", "False", reason)) == ["NotReady"]


def test_each_step_of_a_model_is_one_event() -> None:
    none, checks, loads, checked, broken, repaired = (
        condition(MODEL_READY, status, reason) if reason else Status()
        for status, reason in (
            ("", ""),
            ("Unknown", NOT_CHECKED),
            ("Unknown", "Downloading"),
            ("True", CHECKED),
            ("False", "DownloadFailed"),
            ("True", "Downloaded"),
        )
    )
    assert reasons(none, checks) == reasons(loads, checks) == []
    assert reasons(none, checked) == reasons(checks, checked) == [], "each pod looks, which is nothing new"
    assert reasons(broken, checked) == [CHECKED]
    assert reasons(none, loads) == reasons(checks, loads) == ["Downloading"]
    assert reasons(none, broken) == reasons(loads, broken) == ["DownloadFailed"]
    assert reasons(loads, repaired) == ["Downloaded"]
    for same in (loads, broken, repaired, checked):
        assert reasons(same, same) == reasons(same, none) == []
    assert [t.type for t in transitions(loads, broken)] == ["Warning"]
    assert [t.type for t in transitions(loads, repaired)] == ["Normal"]


def test_a_roll_out_that_stands_still_by_itself_is_no_trouble() -> None:
    for reason in ("RollingOut", "RolloutComplete"):
        assert reasons(Status(), condition("Progressing", "False", reason)) == []
    assert reasons(Status(), condition("Progressing", "False", "NameConflict")) == ["NameConflict"]
    assert reasons(Status(), condition("Progressing", "True", "GpuBudget")) == ["GpuBudget"]
    one, other = (condition("Progressing", "False", "ImagePull", message) for message in ("a", "b"))
    assert reasons(one, other) == ["ImagePull"]


def test_pods_of_another_revision_have_not_been_scaled() -> None:
    role = RoleStatus(replicas=3, desired=3, scaling="kvDemand 80%/80%; 1-6 pods")
    other = Status(revision="r2", roles=RolesStatus(decode=role))
    assert reasons(scaled(1), other) == ["RolloutStarted"]
    assert reasons(scaled(2), scaled(2)) == []


def test_roles_without_autoscaling_have_no_scaling_events() -> None:
    fixed = Status(revision="r1", roles=RolesStatus(decode=RoleStatus(replicas=1, desired=3)))
    assert reasons(scaled(1), fixed) == reasons(fixed, scaled(1)) == []


def test_autoscaling_that_begins_or_ends_is_no_change_of_what_it_sees() -> None:
    for seen in (autoscaling("FailedGetExternalMetric", "False"), autoscaling("GpuBudget")):
        assert reasons(Status(), seen) == reasons(seen, Status()) == []


def test_a_verdict_on_the_route_is_an_event_once() -> None:
    def route(status: str, reason: str, message: str = "m") -> Status:
        return condition("RouteAccepted", status, reason, message)

    pending, accepted = route("Unknown", "Pending"), route("True", "Accepted")
    refused = route("False", "NoMatchingParent")
    assert reasons(Status(), pending) == []
    assert reasons(pending, accepted) == ["RouteAccepted"]
    assert reasons(accepted, refused) == ["RouteNotAccepted"]
    assert reasons(refused, route("False", "NoMatchingListenerHostname", "other words")) == []
    assert reasons(accepted, Status()) == []
