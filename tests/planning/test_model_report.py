"""The status of a model that a Job downloads."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.conditions import NO_MODEL
from pdinference.api.v1alpha1.status import KnownModel, ModelStatus
from pdinference.planning.model_report import ModelView, model_diagnosis, model_status
from pdinference.planning.observed import JobState, PodProblem, PodSummary
from pdinference.planning.transitions import transitions
from tests.planning.statuses import STARTING, built, conditions, having, pod

GIB = 2**30
FACTS = {"config": {"num_hidden_layers": 32}, "checkpoint": {"elements": 5}}


def view(*, complete: bool = False, awaited: bool = True, **report: Any) -> ModelView:
    text = json.dumps(report) if report else ""
    return ModelView(
        "id", "owner/name revision main", awaited, JobState("x-model-1", "Complete" if complete else None, report=text)
    )


def message(model: ModelView) -> str:
    return model_diagnosis(model, [], "ns").message


def test_a_download_reports_its_progress() -> None:
    model = view(phase="Downloading", downloadedBytes=3 * GIB, totalBytes=15 * GIB, commit="c0ffee")
    assert model_diagnosis(model, [], "ns") == (
        "Downloading",
        "Downloading owner/name revision main: 3.0 GiB of 15.0 GiB (20 %).",
    )
    status = model_status(model, None)
    assert (status.downloaded_bytes, status.total_bytes, status.revision) == (3 * GIB, 15 * GIB, "c0ffee")
    assert status.facts is None


def test_a_finished_download_leaves_what_is_known() -> None:
    model = view(complete=True, phase="Ready", totalBytes=15 * GIB, facts=FACTS)
    assert message(model) == "owner/name revision main is complete in the cache, 15.0 GiB."
    facts = model_status(model, None).facts
    assert facts is not None
    assert (facts.source, facts.config) == ("id", {"num_hidden_layers": 32})
    assert facts.checkpoint is not None
    assert facts.checkpoint.elements == 5


def test_what_is_known_of_adapters_is_kept() -> None:
    adapter = {"path": "owner/sql", "rank": 64, "modules": ["q_proj"], "base": "owner/name", "unsupported": []}
    facts = model_status(view(complete=True, phase="Ready", facts=FACTS | {"adapters": [adapter]}), None).facts
    assert facts is not None
    assert [found.model_dump() for found in facts.adapters] == [adapter]


def test_facts_of_the_same_source_stay_while_a_new_job_starts() -> None:
    known = ModelStatus(facts=KnownModel(source="id", config={"num_hidden_layers": 1}))
    assert model_status(view(), known).facts == known.facts
    other = ModelStatus(facts=KnownModel(source="other", config={"num_hidden_layers": 1}))
    assert model_status(view(), other).facts is None


def test_a_failure_is_reported_with_its_message() -> None:
    model = view(phase="Failed", reason="AccessDenied", message="owner/name is gated: accept its terms.")
    assert model_diagnosis(model, [], "ns") == ("AccessDenied", "owner/name is gated: accept its terms.")


def test_a_pod_that_cannot_start_is_named() -> None:
    stuck = replace(
        pod(Role.MODEL, ready=False, problem=PodProblem("Unschedulable", 'persistentvolumeclaim "models" not found')),
        name="x-model-1-abc",
    )
    found = model_diagnosis(view(), [stuck], "ns")
    assert found.reason == "Unschedulable"
    assert 'persistentvolumeclaim "models" not found' in found.message


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_advice_on_placement_names_the_role_on_whose_nodes_it_runs(role: Role) -> None:
    taint = PodProblem("Unschedulable", "0/2 nodes are available: 2 node(s) had untolerated taint {gpu: true}.")
    found = model_diagnosis(replace(view(), placed_as=role), [pod(Role.MODEL, ready=False, problem=taint)], "ns")
    assert found.message.endswith(f"add spec.{role}.placement.tolerations.")


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[1]", '{"totalBytes": "many", "facts": 7}', '{"facts": {"config": 3}}']
)
def test_nonsense_in_the_annotation_does_no_harm(text: str) -> None:
    model = ModelView("id", "owner/name revision main", awaited=True, job=JobState("x-model-1", report=text))
    assert model_status(model, None) == ModelStatus()
    assert model_diagnosis(model, [], "ns").reason == "Starting"


def test_p_and_d_say_that_they_wait_for_the_model() -> None:
    model = view(phase="Downloading", downloadedBytes=GIB, totalBytes=4 * GIB)
    workloads = {role: state for role, state in STARTING.workloads.items() if role not in ENGINE_ROLES}
    status = built(replace(STARTING, model=model, workloads=workloads, pods=()))
    found = conditions(status)
    assert found["ModelReady"].status == "False"
    for name in ("ParameterReady", "DecodeReady", "Ready"):
        assert (found[name].status, found[name].reason) == ("False", "ModelNotReady")
        assert "1.0 GiB of 4.0 GiB (25 %)" in found[name].message


def test_start_end_and_failure_have_one_event_each() -> None:
    def status(model: ModelView) -> Any:
        return built(replace(STARTING, model=model))

    def reasons(old: ModelView, new: ModelView) -> list[str]:
        return [each.reason for each in transitions(status(old), status(new))]

    asking = view(phase="Asking")
    first = view(phase="Downloading", downloadedBytes=1, totalBytes=4 * GIB)
    second = view(phase="Downloading", downloadedBytes=GIB, totalBytes=4 * GIB)
    failed = view(phase="Failed", reason="NoSpace", message="There is no space left.")
    done = view(complete=True, phase="Ready", totalBytes=4 * GIB)
    assert reasons(asking, first) == ["Downloading"]
    assert reasons(first, second) == []
    assert reasons(second, failed) == ["NoSpace"]
    assert reasons(failed, failed) == []
    assert reasons(second, done) == ["Downloaded"]


def looking(*pods: PodSummary, **more: Any) -> Any:
    inputs = having(STARTING, verifies_model=True, pods=pods, **more)
    return conditions(built(inputs))["ModelReady"]


WITHOUT = pod(
    Role.DECODE, ready=False, problem=PodProblem(NO_MODEL, last_words="/models has no config.json. Copy the model.")
)
WITH = replace(pod(Role.PARAMETER), has_model=True)
TOLD = "Pod x-decode-0 has no model to load: /models has no config.json. Copy the model. It retries within 5 minutes."


def test_pods_report_whether_the_model_on_a_volume_is_complete() -> None:
    assert "ModelReady" not in conditions(built(STARTING))
    assert (looking().status, looking().reason) == ("Unknown", "NotChecked")
    assert looking().message.startswith("No pod of the current revision"), "of a pair that sleeps, pods have looked"
    found = looking(WITH, pod(Role.DECODE, ready=False))
    assert (found.status, found.reason) == ("True", "Checked")
    found = looking(WITH, WITHOUT)
    assert (found.status, found.reason, found.message) == ("False", NO_MODEL, TOLD)


def test_only_pods_of_the_wanted_revision_tell() -> None:
    assert looking(replace(WITHOUT, revision="r0"), replace(WITH, revision="r0")).status == "Unknown"


def test_damage_after_the_download_is_reported() -> None:
    done = view(complete=True, phase="Ready")
    assert looking(WITH, model=done).reason == "Downloaded"
    assert looking(WITH, WITHOUT, model=done).reason == NO_MODEL
    assert looking(WITHOUT, model=view(phase="Downloading")).reason == "Downloading"


def test_the_role_whose_pod_has_no_model_says_so() -> None:
    status = conditions(built(having(STARTING, verifies_model=True, pods=(pod(Role.PARAMETER), WITHOUT))))
    assert (status["DecodeReady"].status, status["DecodeReady"].reason) == ("False", NO_MODEL)
    for name in ("DecodeReady", "Progressing", "Ready"):
        assert TOLD in status[name].message


def test_a_model_that_cannot_be_loaded_and_its_repair_have_events() -> None:
    def reasons(old: tuple[PodSummary, ...], new: tuple[PodSummary, ...]) -> list[tuple[str, str]]:
        statuses = [built(having(STARTING, verifies_model=True, pods=pods)) for pods in (old, new)]
        return [(each.type, each.reason) for each in transitions(*statuses)]

    assert reasons((), (WITH,)) == []
    assert reasons((WITH,), ()) == []
    assert reasons((), (WITHOUT,)) == [("Warning", NO_MODEL)]
    assert reasons((WITHOUT,), (WITHOUT, WITH)) == []
    assert reasons((WITHOUT,), (WITH,)) == [("Normal", "Checked")]
