"""A roll-out that cannot succeed sets `Progressing` to False, by its reason or by the deadline, and can recover."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Condition, Status
from pdinference.api.v1alpha1.conditions import BY_NAME, FINAL_REASONS
from pdinference.planning.model_report import ModelView
from pdinference.planning.observed import AutoscalerState, JobState, PodProblem, PodSummary
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.status import StatusInputs, due
from pdinference.planning.transitions import transitions
from tests.planning.rollouts import FIRST, LOOP, NO_ROOM, PULL, SECOND, with_decode
from tests.planning.statuses import ASLEEP, DEADLINE, NOW, SERVING, built, conditions, having, workload


def after(inputs: StatusInputs, previous: Status, seconds: float) -> Status:
    return built(inputs, previous, NOW + timedelta(seconds=seconds))


def progress(status: Status) -> tuple[str, str]:
    found = conditions(status)["Progressing"]
    return found.status, found.reason


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (PULL, "ImagePullBackOff"),
        (replace(PULL, reason="InvalidImageName"), "InvalidImageName"),
        (replace(PULL, reason="ErrImageNeverPull"), "ErrImageNeverPull"),
        (LOOP, "CrashLooping"),
    ],
)
def test_what_waiting_does_not_solve_stops_the_rollout_at_once(problem: PodProblem, reason: str) -> None:
    status = built(with_decode(SECOND, problem))
    found = conditions(status)
    assert progress(status) == ("False", reason)
    assert (found["Stalled"].status, found["Stalled"].reason) == ("True", reason)
    assert "Reconciling" not in found
    assert found["Ready"].status == "True"
    assert found["Stalled"].message.endswith("Revision r0 keeps answering requests until then.")
    assert "x-decode-0" in found["Stalled"].message


def test_a_first_rollout_that_is_stuck_is_not_ready_for_the_same_reason() -> None:
    found = conditions(built(with_decode(FIRST, PULL)))
    assert (found["Ready"].status, found["Ready"].reason) == ("False", "ImagePullBackOff")
    assert found["Progressing"].status == "False"


def test_a_stuck_rollout_comes_back_when_its_pods_do() -> None:
    stuck = built(with_decode(SECOND, PULL))
    again = after(with_decode(SECOND), stuck, 30)
    assert progress(again) == ("True", "RollingOut")
    assert "Stalled" not in conditions(again)
    assert conditions(again)["Reconciling"].reason == "RollingOut"
    assert again.last_progress_time == NOW + timedelta(seconds=30), "a phase is over"


def test_an_unexplained_rollout_without_progress_ends_at_the_deadline() -> None:
    start = built(SECOND)
    assert progress(after(SECOND, start, 599)) == ("True", "RollingOut")
    late = after(SECOND, start, 600)
    assert progress(late) == ("False", "ProgressDeadlineExceeded")
    assert "No progress for 600 seconds (spec.rollout.progressDeadlineSeconds)." in conditions(late)["Stalled"].message


def test_a_pod_that_fits_nowhere_is_a_failure_only_past_the_deadline() -> None:
    waits = _p_is_ready(with_decode(SECOND, NO_ROOM))
    start = built(waits)
    assert progress(after(waits, start, 599)) == ("True", "RollingOut")
    late = after(waits, start, 600)
    assert progress(late) == ("False", "Unschedulable")
    assert conditions(late)["Ready"].status == "True"
    scheduled = after(_p_is_ready(SECOND), late, 900)
    assert progress(scheduled) == ("True", "RollingOut"), "the node that was waited for has come"
    assert due(scheduled, DEADLINE) == NOW + timedelta(seconds=1500)


def _p_is_ready(inputs: StatusInputs) -> StatusInputs:
    return replace(
        inputs,
        pods=tuple(
            replace(p, ready=True, problem=None) if (p.role, p.revision) == (Role.PARAMETER, "r1") else p
            for p in inputs.pods
        ),
    )


def test_the_deadline_is_in_the_status_and_survives_the_operator() -> None:
    start = built(SECOND)
    assert start.last_progress_time == NOW
    assert due(start, DEADLINE) == NOW + DEADLINE
    read_again = Status.model_validate(start.model_dump(mode="json", by_alias=True))
    assert progress(after(SECOND, read_again, 600)) == ("False", "ProgressDeadlineExceeded")
    assert due(after(SECOND, start, 600), DEADLINE) is None, "nothing is left to wait for"


def test_a_ready_pod_starts_the_time_anew_and_an_expired_rollout_too() -> None:
    start = built(SECOND)
    moved = after(_p_is_ready(SECOND), start, 500)
    assert due(moved, DEADLINE) == NOW + timedelta(seconds=1100)
    assert after(_p_is_ready(SECOND), moved, 900).last_progress_time == NOW + timedelta(seconds=500)
    expired = after(SECOND, start, 700)
    back = after(_p_is_ready(SECOND), expired, 800)
    assert progress(back) == ("True", "RollingOut")
    assert due(back, DEADLINE) == NOW + timedelta(seconds=1400)


def test_a_time_of_progress_that_lies_ahead_does_not_hold_the_deadline_up() -> None:
    """The operator's clock was set back."""
    start = built(SECOND)
    back = after(SECOND, start, -86400)
    assert due(back, DEADLINE) == NOW - timedelta(seconds=86400) + DEADLINE


def test_a_new_generation_starts_the_time_anew() -> None:
    expired = after(SECOND, built(SECOND), 700)
    edited = after(replace(SECOND, generation=4), expired, 800)
    assert progress(edited) == ("True", "RollingOut")


def test_a_finished_rollout_has_no_deadline() -> None:
    done = after(SERVING, built(SECOND), 60)
    assert progress(done) == ("False", "RolloutComplete")
    assert done.last_progress_time is None
    assert not {"Reconciling", "Stalled"} & conditions(done).keys()


GROWING = having(
    SERVING,
    replicas={**SERVING.desired.replicas, Role.DECODE: 2},
    workloads={**SERVING.workloads, Role.DECODE: replace(workload(Role.DECODE), desired=2)},
    pods=(*SERVING.pods, PodSummary("x-decode-1", Role.DECODE, "r1", problem=NO_ROOM)),
)


def test_only_pods_that_the_spec_adds_have_a_deadline() -> None:
    asked = after(GROWING, built(GROWING), 600)
    assert progress(asked) == ("False", "Unschedulable")
    assert conditions(asked)["Ready"].status == "True"
    scaled = replace(GROWING, autoscalers={Role.DECODE: AutoscalerState(1, 5)})
    assert built(scaled).last_progress_time is None
    assert progress(after(scaled, built(scaled), 9999)) == ("True", "NotAllReady")
    nothing_serves = replace(scaled, workloads={**scaled.workloads, Role.ROUTER: workload(Role.ROUTER, ready=0)})
    assert progress(after(nothing_serves, built(nothing_serves), 600)) == ("False", "Unschedulable")


def test_a_wait_for_the_gpu_budget_or_in_sleep_is_no_failure() -> None:
    waits = replace(
        SECOND,
        workloads={Role.ROUTER: SECOND.workloads[Role.ROUTER]},
        allocation=Allocation({}, budget=1, blocked="waits for GPUs."),
        pods=tuple(p for p in SECOND.pods if p.revision == "r0"),
    )
    late = after(waits, built(waits), 9999)
    assert progress(late) == ("True", "GpuBudget")
    assert late.last_progress_time is None
    assert progress(after(ASLEEP, built(ASLEEP), 9999)) == ("False", "RolloutComplete")
    freed = after(SECOND, late, 20000)
    assert due(freed, DEADLINE) == NOW + timedelta(seconds=20600), "the time of the wait does not count"


def downloading(report: str) -> StatusInputs:
    """P and D wait for their model."""
    model = ModelView("id", "owner/name", awaited=True, job=JobState("x-model-1", report=report))
    return replace(FIRST, model=model, workloads={Role.ROUTER: workload(Role.ROUTER, ready=0)}, pods=())


def test_a_long_download_is_no_failure() -> None:
    inputs = downloading('{"phase": "Downloading", "downloadedBytes": 1, "totalBytes": 9}')
    late = after(inputs, built(inputs), 99999)
    assert progress(late) == ("True", "RollingOut")
    assert late.last_progress_time is None


def test_a_failed_download_stalls_by_its_own_reason_until_bytes_arrive() -> None:
    failed = downloading('{"phase": "Failed", "reason": "NotFound", "message": "No such repository."}')
    stuck = built(failed)
    assert progress(stuck) == ("False", "NotFound")
    assert "No such repository." in conditions(stuck)["Stalled"].message
    retried = after(downloading('{"phase": "Asking"}'), stuck, 60)
    assert [c for c in retried.conditions if c.type != "MemoryFits"] == [
        c for c in stuck.conditions if c.type != "MemoryFits"
    ], "the next try changes nothing before it gets further"
    arrives = after(downloading('{"phase": "Downloading"}'), retried, 70)
    assert progress(arrives) == ("True", "RollingOut")


def test_a_job_that_does_not_start_has_the_deadline() -> None:
    inputs = downloading("")
    assert progress(after(inputs, built(inputs), 600)) == ("False", "ProgressDeadlineExceeded")


def crash_cycle(restarts: int) -> Iterator[StatusInputs]:
    """The status of a container between two crashes."""
    loop = replace(LOOP, restarts=restarts)
    yield with_decode(SECOND, loop, restarts=restarts, restarted=True)
    yield with_decode(SECOND, None, restarts=restarts + 1, restarted=True)
    yield with_decode(
        SECOND, replace(loop, reason="Error", restarts=restarts + 1), restarts=restarts + 1, restarted=True
    )


def test_a_crash_loop_writes_no_status_between_crashes() -> None:
    status = built(with_decode(SECOND, LOOP, restarts=2, restarted=True))
    for count in range(2, 6):
        for number, inputs in enumerate(crash_cycle(count)):
            assert after(inputs, status, 100 * count + number) == status


def test_an_image_pull_that_is_retried_writes_no_status() -> None:
    status = built(with_decode(SECOND, PULL))
    waits = replace(PULL, reason="ImagePullBackOff", message='Back-off pulling image "x:1": ErrImagePull: not found')
    assert after(with_decode(SECOND, waits), status, 60) == status


def test_a_crash_loop_is_over_when_the_pod_is_ready_or_another_one_starts() -> None:
    stuck = built(with_decode(SECOND, LOOP, restarts=2, restarted=True))
    assert progress(after(with_decode(SECOND, ready=True, restarts=3, restarted=True), stuck, 60))[0] == "True"
    assert progress(after(with_decode(SECOND), stuck, 60)) == ("True", "RollingOut")


def test_a_stuck_rollout_is_one_event_however_many_pods_change() -> None:
    first, second = built(SECOND), after(with_decode(SECOND, PULL), built(SECOND), 5)
    assert [(e.type, e.reason) for e in transitions(first, second)] == [("Warning", "ImagePullBackOff")]
    third = after(with_decode(_p_is_ready(SECOND), PULL), second, 9)
    assert conditions(third)["Progressing"].message == conditions(second)["Progressing"].message
    assert list(transitions(second, third)) == []


def test_an_invalid_spec_stalls_and_leaves_no_reconciling_behind() -> None:
    status = after(replace(SECOND, generation=4, invalid="spec.x: wrong"), built(SECOND), 1)
    found = conditions(status)
    assert (found["Stalled"].status, found["Stalled"].reason) == ("True", "InvalidSpec")
    assert "Reconciling" not in found
    assert due(status, DEADLINE) is None, "only an edit helps"


TROUBLES = st.sampled_from(
    [
        None,
        PULL,
        LOOP,
        NO_ROOM,
        replace(LOOP, restarts=0),
        PodProblem("ContainerCreating"),
        PodProblem("PreparingModel", container="pdinference-model"),
        PodProblem("NoUsableModel", last_words="no"),
        PodProblem("Error", exit_code=1),
    ]
)
BASES = st.sampled_from([FIRST, SECOND, GROWING, ASLEEP, SERVING, downloading(""), downloading('{"phase": "Failed"}')])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[StatusInputs, int]]:
    """Situations, with the seconds at which they are seen."""
    found, second = [], 0
    for _ in range(draw(st.integers(1, 6))):
        base = draw(BASES)
        if draw(st.booleans()):
            base = with_decode(base, draw(TROUBLES), ready=draw(st.booleans()), restarted=draw(st.booleans()))
        second += draw(st.integers(0, 900))
        found.append((base, second))
    return found


@given(histories())
def test_conditions_agree_with_each_other_and_the_table(
    history: list[tuple[StatusInputs, int]],
) -> None:
    status, now = Status(), NOW
    for inputs, second in history:
        now = NOW + timedelta(seconds=second)
        status = built(inputs, status, now)
        _agree(status, now)
        assert built(inputs, status, now) == status, "looking again changes nothing"


def _agree(status: Status, now: datetime) -> None:
    found = conditions(status)
    judged = found["Progressing"]
    stuck = judged.status == "False" and judged.reason != "RolloutComplete"
    assert ("Stalled" in found) == stuck
    assert ("Reconciling" in found) == (judged.status == "True")
    assert {c.status for name, c in found.items() if name in {"Stalled", "Reconciling"}} <= {"True"}
    if any(found[name].reason in FINAL_REASONS for name in ("ParameterReady", "DecodeReady", "RouterReady")):
        assert stuck or judged.reason == "RolloutComplete"
    moment = due(status, DEADLINE)
    assert moment is None or moment > now
    for condition in found.values():
        _is_in_the_table(condition)


def _is_in_the_table(condition: Condition) -> None:
    row = BY_NAME[condition.type]
    known = condition.reason in row.reasons.get(condition.status, ())
    assert known or row.foreign, f"{condition.type} {condition.status} {condition.reason}"
