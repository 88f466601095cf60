"""What the operator says about a PDBatch that is not valid."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from pdinference.api.validation import InvalidResourceError, validated_batch
from tests.conftest import BATCH_EXAMPLE

Make = Callable[..., dict[str, Any]]


def test_a_minimal_document_is_valid_and_has_sensible_defaults(batch_document: Make) -> None:
    spec = validated_batch(batch_document()).spec
    assert (spec.concurrency, spec.max_retries, spec.suspend) == (16, 5, False)


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"input": {}}, "spec.input", "exactly one of persistentVolumeClaim and configMap"),
        (
            {
                "input": {
                    "configMap": {"name": "a", "key": "b"},
                    "persistentVolumeClaim": {"claimName": "a", "path": "b"},
                }
            },
            "spec.input",
            "exactly one",
        ),
        (
            {"input": {"persistentVolumeClaim": {"claimName": "a", "path": "../b"}}},
            "spec.input.persistentVolumeClaim.path",
            "path within the volume",
        ),
        ({"output": {}}, "spec.output", "exactly one of persistentVolumeClaim and configMap"),
        ({"output": {"configMap": {"name": "prompts"}}}, "spec.output.configMap.name", "another ConfigMap"),
        ({"concurrency": 0}, "spec.concurrency", "greater than or equal to 1"),
        ({"ttlSecondsAfterFinished": 5}, "spec.ttlSecondsAfterFinished", "greater than or equal to 60"),
        ({"model": "-x"}, "spec.model", "model name"),
        ({"modell": "x"}, "spec.modell", "kubectl explain pdib.spec"),
    ],
)
def test_what_is_wrong_is_named(batch_document: Make, spec: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidResourceError) as caught:
        validated_batch(batch_document(**spec))
    found = {problem.field: problem.message for problem in caught.value.problems}
    assert words in found[field]


@pytest.mark.parametrize(("name", "valid"), [("a" * 52, True), ("a" * 53, False), ("Nightly", False), ("1", False)])
def test_names_leave_room_for_the_pods(batch_document: Make, name: str, valid: bool) -> None:
    if valid:
        assert validated_batch(batch_document(name)).metadata.name == name
    else:
        with pytest.raises(InvalidResourceError, match=r"metadata\.name"):
            validated_batch(batch_document(name))


def test_the_example_is_valid() -> None:
    (document,) = [d for d in yaml.safe_load_all(BATCH_EXAMPLE.read_text(encoding="utf-8")) if d["kind"] == "PDBatch"]
    assert validated_batch(document).spec.inference_ref.name == "llama-8b"
