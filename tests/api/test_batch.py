"""Messages for invalid PDBatches."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDBatch
from pdinference.api.validation import read_batch

Make = Callable[..., dict[str, Any]]


def test_a_minimal_document_is_valid_and_has_sensible_defaults(batch_document: Make) -> None:
    spec = PDBatch.model_validate(batch_document()).spec
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
        ({"apiKeyName": "../tls.key"}, "spec.apiKeyName", "Write a key of the Secret"),
        ({"modell": "x"}, "spec.modell", "Did you mean model?"),
        ({"prefill": {}}, "spec.prefill", "Fields of spec: inferenceRef, "),
    ],
)
def test_what_is_wrong_is_named(batch_document: Make, spec: dict[str, Any], field: str, words: str) -> None:
    found = {problem.field: problem.message for problem in read_batch(batch_document(**spec)).problems}
    assert words in found[field]


@pytest.mark.parametrize(("name", "valid"), [("a" * 52, True), ("a" * 53, False), ("Nightly", False), ("1", False)])
def test_names_leave_room_for_the_pods(batch_document: Make, name: str, valid: bool) -> None:
    assert {problem.field for problem in read_batch(batch_document(name)).problems} == (
        set() if valid else {"metadata.name"}
    )
