"""Fields of a CRD of another version: ignored with a warning in what the API server sent, refused in a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pdinference.admission.review import reviewed
from pdinference.api.v1alpha1 import Condition
from pdinference.cli import main
from pdinference.cluster.state.records import resource_record
from pdinference.cluster.state.scalers import scaler_state
from pdinference.controller.status_writer import status_of
from pdinference.examination.client import Examinations
from pdinference.examination.tasks import tasks
from pdinference.isolation.calls import InProcess
from pdinference.loadmetrics.policies import Policies
from pdinference.manifests import RenderSettings
from tests.inference.scaled import SCALED
from tests.inference.world import World

Json = dict[str, Any]
Make = Callable[..., Json]
NEW: Json = {"fromTheFuture": {"depth": [1, "x"]}}
SPEC: Json = {"decode": {"replicas": 2, "parallelism": NEW}, "rollout": NEW, **NEW}
FIELDS = ["spec.decode.parallelism.fromTheFuture", "spec.rollout.fromTheFuture", "spec.fromTheFuture"]
IGNORED = (
    "This version of the operator does not know this field and ignores it. Install operator and CRDs of one version."
)


def answer(new: Json, old: Json | None = None, *, early: bool = False) -> Json:
    request = {"uid": "u-1", "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    response: Json = reviewed(review, RenderSettings(), early=early)["response"]
    return response


def test_the_webhook_warns_of_each_one(document: Make) -> None:
    found = answer(document(**SPEC))
    assert found["allowed"] is True
    assert {f"{field}: {IGNORED}" for field in FIELDS} <= set(found["warnings"])
    assert answer(document(**SPEC), early=True) == {"uid": "u-1", "allowed": True}


def test_a_problem_beside_them_is_refused(document: Make) -> None:
    wrong = document(**{**SPEC, "decode": {"replicas": -1, "parallelism": {"pipeline": 2, **NEW}}})
    for found in (answer(wrong), answer(wrong, early=True)):
        assert found["allowed"] is False
        _, *problems = found["status"]["message"].splitlines()
        assert [line.split(":")[0].strip() for line in problems] == [
            "spec.decode.replicas",
            "spec.decode.parallelism.pipeline",
        ]
        assert f"spec.rollout.fromTheFuture: {IGNORED}" in found["warnings"]


def test_what_a_newer_field_replaces_is_still_required(document: Make) -> None:
    found = answer(document(model={"source": NEW}))
    assert found["allowed"] is False
    assert "spec.model.source" in found["status"]["message"]


def test_hostile_ones_are_bounded(document: Make) -> None:
    found = answer(document(rollout={f"x{number}{'y' * 300}": "z" * 50 for number in range(100)}))
    assert found["allowed"] is True
    assert len(found["warnings"]) == 16
    assert max(map(len, found["warnings"])) <= 256


def test_a_batch_is_treated_alike(batch_document: Make) -> None:
    new = batch_document(**NEW)
    warnings = [f"spec.fromTheFuture: {IGNORED}"]
    assert answer(new) == {"uid": "u-1", "allowed": True, "warnings": warnings}
    assert answer(batch_document(suspend=True, **NEW), new) == {"uid": "u-1", "allowed": True, "warnings": warnings}


@pytest.mark.parametrize("command", ["validate", "render"])
def test_in_a_file_they_are_problems(document: Make, tmp_path: Path, command: str) -> None:
    file = tmp_path / "llama.yaml"
    file.write_text(json.dumps(document(**SPEC)))
    found = CliRunner().invoke(main, [command, "-f", str(file)])
    assert found.exit_code == 1
    for field in FIELDS:
        assert f"{field}: Unknown field." in found.output


async def test_no_manifest_and_no_revision_depends_on_them(document: Make) -> None:
    examinations = Examinations(InProcess(tasks(RenderSettings())))
    old = document(decode={"replicas": 2})

    def record(body: Json) -> Any:
        return resource_record("PDInference", {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}})

    with_them, children = await examinations.compiled(record(document(**SPEC)))
    without, same = await examinations.compiled(record(old))
    assert with_them.revision == without.revision
    assert [child.manifest for child in children] == [child.manifest for child in same]
    assert list(with_them.ignored) == FIELDS


async def test_a_default_of_a_newer_crd_changes_no_child_and_no_condition(
    document: Make, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(document(decode={"replicas": 2}))
    await world.reconcile()
    before = {path: body for path, body in world.api.objects.items() if "/apps/" in path or "/services/" in path}
    assert before
    world.edit(**SPEC)
    await world.reconcile()
    assert {path: world.api.objects[path] for path in before} == before
    assert world.condition("Progressing")["reason"] != "InvalidSpec"
    assert f"Fields of a CRD of another version are ignored: {', '.join(FIELDS)}" in caplog.text
    assert len([record for record in caplog.records if "another version" in record.message]) == 1


def test_load_metrics_are_still_collected(document: Make) -> None:
    world = World(document(decode=SCALED, **NEW))
    assert [owner.name for owner in Policies(world.cache).measured()] == ["llama"]


async def test_a_batch_stays_valid(batch_document: Make) -> None:
    body = batch_document(**NEW)
    metadata = {**body["metadata"], "uid": "u", "resourceVersion": "1"}
    record = resource_record("PDBatch", {**body, "metadata": metadata})
    batch = await Examinations(InProcess(tasks(RenderSettings()))).batch(record)
    assert batch.spec.inference_ref.name == "llama"


def test_members_of_a_newer_status_are_ignored(document: Make) -> None:
    condition = {
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-11-24T12:00:00Z",
    }  # fmt: skip
    status = {"servingRevision": "abc", "conditions": [{**condition, **NEW}], **NEW}
    record = resource_record(
        "PDInference",
        {**document(), "metadata": {**document()["metadata"], "uid": "u", "resourceVersion": "1"}, "status": status},
    )
    expected = (Condition.model_validate(condition),)
    assert tuple(status_of(record).conditions) == expected
    assert scaler_state({"status": {"conditions": [{**condition, **NEW}], **NEW}}).conditions == expected
