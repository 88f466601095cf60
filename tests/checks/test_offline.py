"""Messages for PDBatches that cannot work."""

from collections.abc import Callable
from typing import Any

from pdinference.checks import examine_batch
from pdinference.manifests import RenderSettings

Make = Callable[..., dict[str, Any]]


def problems(document: dict[str, Any]) -> dict[str, str]:
    return {problem.field: problem.message for problem in examine_batch(document, RenderSettings()).problems}


def test_a_sound_one_comes_back(batch_document: Make) -> None:
    found = examine_batch(batch_document(), RenderSettings())
    assert found.problems == ()
    assert found.batch is not None
    assert found.batch.metadata.name == "nightly"


def test_requests_above_their_limits_are_found_before_there_is_a_pod(batch_document: Make) -> None:
    resources = {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}
    assert "exceeds the limit of 1Gi" in problems(batch_document(resources=resources))["spec.resources.requests.memory"]


def test_the_input_is_not_written_over(batch_document: Make) -> None:
    def asked(file: str, claim: str = "results", **output: str) -> dict[str, str]:
        source = {"persistentVolumeClaim": {"claimName": claim, "path": file}}
        target = {"persistentVolumeClaim": {"claimName": "results", **output}}
        return problems(batch_document(input=source, output=target))

    for path, output in (("nightly/output.jsonl", {}), ("a/b/errors.jsonl", {"path": "a/b"})):
        found = asked(path, **output)
        assert "The output would overwrite" in found["spec.input.persistentVolumeClaim.path"]
    assert asked("nightly/input.jsonl") == {}
    assert asked("nightly/output.jsonl", claim="other") == {}


def test_everything_is_said_at_once(batch_document: Make) -> None:
    resources = {"requests": {"cpu": 2}, "limits": {"cpu": 1}}
    found = problems(batch_document(concurrency="many", input={}, resources=resources))
    assert found.keys() == {"spec.concurrency", "spec.input", "spec.resources.requests.cpu"}
