"""The operator's statuses as evaluated by Flux (kstatus, CEL) and Argo CD (the chart's scripts)."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from e2e.cluster.build import binary
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import BatchStatus, Condition, Status
from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.v1alpha1.conditions import (
    BY_NAME,
    FINAL_REASONS,
    PAUSED,
    PROGRESSING,
    READY,
    RECONCILING,
    STALLED,
    TABLE,
    ConditionType,
    Truth,
)
from pdinference.memory import NO_VERDICT
from pdinference.planning.batch import BatchStatusInputs, build_batch_status
from pdinference.planning.observed import Failure, JobState, PodProblem, PodSummary
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.status import StatusInputs, left_alone_status
from tests.charts.gitops import EXAMPLES, documents, named
from tests.conftest import REPOSITORY
from tests.planning.rollouts import FIRST, LOOP, NO_ROOM, PULL, SECOND, with_decode
from tests.planning.statuses import ASLEEP, NOW, SERVING, STARTING, built, having, pod, workload

SCRIPTS = REPOSITORY / "charts" / "pdinference-operator" / "files" / "argocd" / "pdinference.io"
LATER = NOW + timedelta(hours=1)
GENERATION = 3


class Health(NamedTuple):
    """What the tools say of an object."""

    kstatus: str
    flux: str
    argocd: str
    message: str


def expressions(kind: str) -> dict[str, str]:
    """The CEL expressions of the example for Flux."""
    checks = [check for name in ("models", "batches") for check in _checks(name)]
    (found,) = (check for check in checks if check["kind"] == kind)
    return {name: text for name, text in found.items() if name not in {"apiVersion", "kind"}}


def _checks(name: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = named(EXAMPLES / "flux" / "apps" / f"{name}.yaml", "Kustomization", name)["spec"][
        "healthCheckExprs"
    ]
    return found


def health(kind: str, status: ApiModel | Mapping[str, Any], generation: int = GENERATION, **metadata: Any) -> Health:
    """The health of a resource with a status as the operator writes it."""
    if isinstance(status, ApiModel):
        status = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    resource = {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "x", "namespace": "ns", "generation": generation, **metadata},
        "status": status,
    }
    (found,) = evaluated(SCRIPTS / kind / "health.lua", [resource], expressions(kind))
    return found


def evaluated(
    script: Path, resources: Sequence[Mapping[str, Any]], expressions_: Mapping[str, str] = MappingProxyType({})
) -> list[Health]:
    command: list[str | Path] = [binary("health-of"), script, json.dumps(dict(expressions_))]
    answer = subprocess.run(command, input=json.dumps(resources), capture_output=True, text=True, check=True)
    return [Health(**one) for one in json.loads(answer.stdout)]


def late(inputs: StatusInputs) -> Status:
    """The status when nothing has happened for an hour, which is longer than the deadline."""
    return built(inputs, built(inputs), LATER)


def without_router(inputs: StatusInputs) -> StatusInputs:
    pods = (*(one for one in inputs.pods if one.role is not Role.ROUTER), pod(Role.ROUTER, ready=False))
    return replace(inputs, pods=pods, workloads={**inputs.workloads, Role.ROUTER: workload(Role.ROUTER, ready=0)})


def stopped(inputs: StatusInputs, *roles: Role) -> StatusInputs:
    """With `replicas: 0` of roles, whose pods are gone."""
    workloads = {role: replace(workload(role, ready=0), desired=0) for role in roles}
    pods = tuple(one for one in inputs.pods if one.role not in roles)
    desired = {**inputs.desired.replicas, **dict.fromkeys(roles, 0)}
    return without_router(having(inputs, replicas=desired, workloads={**inputs.workloads, **workloads}, pods=pods))


def failed(*, transient: bool) -> StatusInputs:
    """A child cannot be written."""
    return replace(SERVING, failures=(Failure("Service", "x", "NameConflict", "taken", transient=transient),))


GOES_ON = ("InProgress", "InProgress", "Progressing")
STUCK = ("Failed", "Failed", "Degraded")
DONE = ("Current", "Current", "Healthy")
STOPPED = ("InProgress", "Current", "Suspended")
"""kstatus knows no other word for a Ready that is False."""
INVALID = replace(SERVING, invalid="spec.x: wrong")
WITHHELD = replace(SERVING, paused=True, withheld=True)
NO_BUDGET = replace(
    STARTING,
    workloads={Role.ROUTER: workload(Role.ROUTER, ready=0)},
    allocation=Allocation({}, blocked="no GPUs of the budget are free."),
)
INFERENCES: dict[str, tuple[Status, tuple[str, str, str]]] = {
    "serves": (built(SERVING), DONE),
    "asleep": (built(ASLEEP), DONE),
    "asleep, and requests may be unknown": (built(having(ASLEEP, activity=None)), GOES_ON),
    "asleep without a router": (built(without_router(ASLEEP)), GOES_ON),
    "first roll-out": (built(STARTING), GOES_ON),
    "roll-out beside an old revision": (built(SECOND), GOES_ON),
    "no GPUs in the budget": (built(NO_BUDGET), GOES_ON),
    "no room on nodes": (built(with_decode(SECOND, NO_ROOM)), GOES_ON),
    "no room on nodes for too long": (late(with_decode(SECOND, NO_ROOM)), STUCK),
    "no progress for too long": (late(SECOND), STUCK),
    "bad image": (built(with_decode(FIRST, PULL)), STUCK),
    "bad image beside an old revision": (built(with_decode(SECOND, PULL)), STUCK),
    "crash loop beside an old revision": (built(with_decode(SECOND, LOOP)), STUCK),
    "invalid, and the last valid spec serves": (built(INVALID), STUCK),
    "invalid from the beginning": (
        left_alone_status("spec.x: wrong", NO_VERDICT, generation=GENERATION, previous=Status(), now=NOW),
        STUCK,
    ),
    "paused": (built(replace(SERVING, paused=True)), ("Current", "Current", "Suspended")),
    "paused, and an edit waits": (built(WITHHELD), ("InProgress", "InProgress", "Suspended")),
    "paused during a roll-out": (built(replace(SECOND, paused=True)), GOES_ON),
    "paused, and stuck": (built(replace(with_decode(SECOND, PULL), paused=True)), STUCK),
    "paused from the beginning": (
        left_alone_status("paused", NO_VERDICT, generation=GENERATION, previous=Status(), now=NOW, reason=PAUSED),
        ("InProgress", "InProgress", "Suspended"),
    ),
    "a child's name is taken": (built(failed(transient=False)), STUCK),
    "a write is repeated": (built(failed(transient=True)), GOES_ON),
    "all stopped": (built(stopped(SERVING, *ENGINE_ROLES)), STOPPED),
    "D stopped": (built(stopped(SERVING, Role.DECODE)), STOPPED),
    "P stopped": (built(stopped(SERVING, Role.PARAMETER)), STOPPED),
}


@pytest.mark.parametrize(("status", "expected"), INFERENCES.values(), ids=INFERENCES)
def test_flux_and_argo_cd_see_the_same_inference(status: Status, expected: tuple[str, str, str]) -> None:
    assert health("PDInference", status)[:3] == expected


@pytest.mark.parametrize("reason", sorted(FINAL_REASONS))
def test_pod_problems_that_waiting_does_not_solve_are_failures(reason: str) -> None:
    problem = LOOP if reason == "CrashLooping" else PodProblem(reason, "no", "vllm", "x:1")
    assert health("PDInference", built(with_decode(SECOND, problem)))[:3] == STUCK


BASES = {
    "Healthy": built(SERVING),
    "Progressing": built(STARTING),
    "Degraded": built(with_decode(SECOND, PULL)),
    "Suspended": built(stopped(SERVING, *ENGINE_ROLES)),
}
TRUTHS: tuple[Truth, ...] = ("True", "False", "Unknown")
DECISIVE = {STALLED: {"True": "Degraded"}, RECONCILING: {"True": "Progressing"}, READY: {"True": "Healthy"}}
"""Conditions that the health depends on, and the health by Argo CD for a status of each, where the resource serves."""


def with_conditions(base: Status, row: ConditionType) -> list[tuple[Truth, str, Status]]:
    """The status with each status and each reason of a condition in the place of its own."""
    others = [condition for condition in base.conditions if condition.type != row.name]
    found = []
    for truth in TRUTHS:
        for reason in sorted(frozenset().union(*row.reasons.values())):
            one = Condition(
                type=row.name, status=truth, reason=reason, message=f"{row.name} {truth} {reason}",
                last_transition_time=NOW, observed_generation=GENERATION,
            )  # fmt: skip
            found.append((truth, reason, base.model_copy(update={"conditions": [*others, one]})))
    return found


def healths(statuses: Sequence[Status]) -> list[Health]:
    """As `health`, of many in one process."""
    resources = [
        {
            "apiVersion": "pdinference.io/v1alpha1",
            "kind": "PDInference",
            "metadata": {"name": "x", "namespace": "ns", "generation": GENERATION},
            "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        for status in statuses
    ]
    return evaluated(SCRIPTS / "PDInference" / "health.lua", resources, expressions("PDInference"))


@pytest.mark.parametrize("row", [row for row in TABLE if row.name not in DECISIVE], ids=lambda row: row.name)
def test_no_other_condition_changes_the_health(row: ConditionType) -> None:
    for base, status in BASES.items():
        cases = [one for _, reason, one in with_conditions(status, row) if (row.name, reason) != (PROGRESSING, PAUSED)]
        before, *found = healths([status, *cases])
        assert before.argocd == base
        assert len(found) >= len(TRUTHS)
        assert set(found) == {before}


@pytest.mark.parametrize("name", DECISIVE)
def test_each_reason_of_a_decisive_condition_has_the_same_health(name: str) -> None:
    cases = with_conditions(BASES["Healthy"], BY_NAME[name])
    for (truth, reason, _), found in zip(cases, healths([status for _, _, status in cases]), strict=True):
        otherwise = "Healthy" if name != READY else "Suspended" if reason == "ScaledToZero" else "Progressing"
        assert found.argocd == DECISIVE[name].get(truth, otherwise), (truth, reason)
        if found.argocd != "Healthy":
            assert found.message == f"{name} {truth} {reason}"


def test_a_stuck_resource_is_degraded_and_a_changing_one_progresses_whatever_ready_says() -> None:
    ready = BY_NAME[READY]
    for base in ("Degraded", "Progressing"):
        cases = [status for _, _, status in with_conditions(BASES[base], ready)]
        assert {found.argocd for found in healths(cases)} == {base}


RUNNER = PodSummary("nightly-batch-0", None, "", "Running", ready=True)
ACTIVE = JobState("nightly")


def batch(
    job: JobState | None = None,
    *pods: PodSummary,
    unready: str = "",
    failures: tuple[Failure, ...] = (),
    invalid: str = "",
    previous: BatchStatus | None = None,
) -> BatchStatus:
    inputs = BatchStatusInputs("ns", GENERATION, unready, job, pods=pods, failures=failures, invalid=invalid)
    return build_batch_status(inputs, previous=previous or BatchStatus(), now=NOW)


def waiting(problem: PodProblem) -> BatchStatus:
    return batch(ACTIVE, replace(RUNNER, phase="Pending", ready=False, problem=problem))


COMPLETE = batch(JobState("nightly", "Complete"))
BATCHES: dict[str, tuple[BatchStatus, tuple[str, str]]] = {
    "waits for its PDInference": (batch(unready="PDInference x is not Ready."), ("InProgress", "Progressing")),
    "no Job yet": (batch(), ("InProgress", "Progressing")),
    "no pod yet": (batch(ACTIVE), ("InProgress", "Progressing")),
    "no room": (waiting(NO_ROOM), ("InProgress", "Progressing")),
    "sends requests": (batch(ACTIVE, RUNNER), ("InProgress", "Progressing")),
    "suspended": (batch(JobState("nightly", settings={"suspend": True})), ("InProgress", "Suspended")),
    "complete": (COMPLETE, ("Current", "Healthy")),
    "complete, and then invalid": (batch(invalid="spec.x: wrong", previous=COMPLETE), ("Current", "Healthy")),
    "failed": (batch(JobState("nightly", "Failed", "BackoffLimitExceeded")), ("Failed", "Degraded")),
    "out of time": (batch(JobState("nightly", "Failed", "DeadlineExceeded")), ("Failed", "Degraded")),
    "invalid": (batch(invalid="spec.x: wrong"), ("Failed", "Degraded")),
    "invalid while it runs": (batch(ACTIVE, RUNNER, invalid="spec.x: wrong"), ("Failed", "Degraded")),
    "name taken": (batch(failures=(Failure("Job", "x", "NameConflict", "taken"),)), ("Failed", "Degraded")),
    "write repeated": (batch(failures=(Failure("Job", "x", "Timeout", "late"),)), ("InProgress", "Progressing")),
}


@pytest.mark.parametrize(("status", "expected"), BATCHES.values(), ids=BATCHES)
def test_flux_and_argo_cd_see_the_same_batch(status: BatchStatus, expected: tuple[str, str]) -> None:
    assert health("PDBatch", status)[1:3] == expected


def test_without_expressions_flux_takes_a_batch_that_runs_for_done() -> None:
    assert health("PDBatch", batch(ACTIVE, RUNNER)).kstatus == "Current"


@pytest.mark.parametrize("reason", sorted(FINAL_REASONS))
def test_problems_of_a_runner_that_waiting_does_not_solve_are_failures(reason: str) -> None:
    problem = LOOP if reason == "CrashLooping" else PodProblem(reason, "no", "runner", "x:1")
    assert health("PDBatch", waiting(problem))[1:3] == ("Failed", "Degraded")


@pytest.mark.parametrize("kind", ["PDInference", "PDBatch"])
@pytest.mark.parametrize(
    ("status", "generation", "metadata"),
    [
        ({"observedGeneration": 0}, 1, {}),
        ({}, 1, {}),
        ({"observedGeneration": 3, "conditions": []}, 4, {}),
        ({"observedGeneration": 3}, 3, {}),
        ({"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "Unheard", "message": "?"}]}, 3, {}),
        ({"observedGeneration": 3, "phase": "Unheard", "conditions": []}, 3, {}),
    ],
    ids=["new", "without a status", "edited", "without conditions", "unknown value", "unknown phase"],
)
def test_whatever_is_not_known_is_in_progress(
    kind: str, status: dict[str, Any], generation: int, metadata: dict[str, Any]
) -> None:
    found = health(kind, status, generation, **metadata)
    assert (found.flux, found.argocd) == ("InProgress", "Progressing")
    assert found.message


@pytest.mark.parametrize(("kind", "status"), [("PDInference", built(SERVING)), ("PDBatch", COMPLETE)])
def test_an_edit_and_a_deletion_are_in_progress(kind: str, status: ApiModel) -> None:
    assert health(kind, status, generation=GENERATION + 1)[1:3] == ("InProgress", "Progressing")
    assert health(kind, status, deletionTimestamp="2026-11-05T12:00:00Z").argocd == "Progressing"


def test_a_condition_that_is_false_does_not_count() -> None:
    status = built(SERVING).model_dump(mode="json", by_alias=True)
    status["conditions"] += [{"type": "Stalled", "status": "False"}, {"type": "Reconciling", "status": "False"}]
    assert health("PDInference", status).argocd == "Healthy"


def test_the_message_says_what_is_wrong() -> None:
    found = health("PDInference", built(with_decode(SECOND, PULL)))
    assert "cannot get the image x:1 (not found)" in found.message
    assert health("PDInference", built(INVALID)).message == "spec.x: wrong"
    running = batch(ACTIVE, RUNNER).model_copy(update={"progress": "12/100"})
    assert health("PDBatch", running).message == "12/100 requests. Requests are being sent."


def test_the_patch_of_argo_cd_has_the_scripts_of_the_chart() -> None:
    (patch,) = documents(EXAMPLES / "argocd" / "argocd-cm.yaml")
    key = "resource.customizations.health.pdinference.io_"
    found = {name.removeprefix(key): text for name, text in patch["data"].items() if name.startswith(key)}
    assert found == {kind: (SCRIPTS / kind / "health.lua").read_text() for kind in ("PDInference", "PDBatch")}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ("Progressing", "")),
        ({"health": {"status": "Degraded", "message": "no"}}, ("Degraded", "no")),
        ({"health": {"status": "Healthy"}}, ("Healthy", "")),
    ],
)
def test_an_application_has_the_health_of_its_own(
    status: dict[str, Any], expected: tuple[str, str], tmp_path: Path
) -> None:
    (patch,) = documents(EXAMPLES / "argocd" / "argocd-cm.yaml")
    script = tmp_path / "health.lua"
    script.write_text(patch["data"]["resource.customizations.health.argoproj.io_Application"], encoding="utf-8")
    application = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "x"}}
    (found,) = evaluated(script, [{**application, "status": status}])
    assert found[2:] == expected
