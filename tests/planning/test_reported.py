"""Reports of pods are typed and limited; invalid reports count as unknown."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.v1alpha1 import BatchStatus
from pdinference.planning import reported
from pdinference.planning.batch import BatchStatusInputs, Progress, build_batch_status
from pdinference.planning.model_report import ModelView, model_diagnosis, model_status
from pdinference.planning.observed import JobState, PodSummary

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NONSENSE = [
    "",
    "[]",
    "null",
    "{",
    '{"total": Infinity}',
    '{"total": NaN}',
    '{"total": 1e999}',
    '{"total": ' + "9" * 5000 + "}",
    '{"a": ' + "[" * 100_000,
    '{"a": ' + "[" * 65 + "]" * 65 + "}",
    '{"a": "\\ud800"}',
    '{"\\udfff": 1}',
    '{"a": "' + "x" * 10_000 + '"}',
]


@pytest.mark.parametrize("text", NONSENSE)
def test_what_is_no_report_says_nothing(text: str) -> None:
    assert reported.report(text, 8192) == {}


@pytest.mark.parametrize("value", [-1, 1.5, True, "5", None, 2**53 + 1, [1]])
def test_what_is_no_count_is_unknown(value: object) -> None:
    assert reported.count(value) is None


def test_texts_are_cut_and_have_no_control_characters() -> None:
    assert reported.plain("a\x00b\x1b[31mc\nd\u2028e\ud800f") == "a b [31mc d e f"
    assert reported.plain("x" * 5000) == "x" * 1023 + "…"
    assert reported.plain(["x"]) == ""
    assert reported.plain("ä中🙂") == "ä中🙂"


@pytest.mark.parametrize("value", ["with spaces", "lower", "", "A" * 65, "Ünicode", 5, None, "A\n"])
def test_a_reason_is_one_word_or_the_default(value: object) -> None:
    assert reported.reason(value, "Failed") == "Failed"


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda parts: st.one_of(st.lists(parts, max_size=3), st.dictionaries(st.text(), parts, max_size=3)),
    max_leaves=6,
)
_members = st.sampled_from(
    ["phase", "commit", "totalBytes", "downloadedBytes", "reason", "message", "total", "completed", "failed", "facts"]
)


@given(st.dictionaries(_members, st.one_of(_json, st.sampled_from(["Downloading", "Failed", "Ready"]))))
def test_any_report_ends_in_a_status_that_the_api_server_takes(content: dict[str, Any]) -> None:
    text = json.dumps(content)
    view = ModelView("id", "owner/name", True, JobState("x-model-1", report=text))
    assert model_diagnosis(view, [], "ns").message.isprintable()
    json.dumps(model_status(view, None).model_dump(mode="json"), allow_nan=False, ensure_ascii=False).encode()
    pod = PodSummary("nightly-0", None, "", phase="Failed", report=text)
    inputs = BatchStatusInputs("ns", 1, "", JobState("nightly", "Failed", "BackoffLimitExceeded"), pods=(pod,))
    status = build_batch_status(inputs, previous=BatchStatus(), now=NOW)
    json.dumps(status.model_dump(mode="json"), allow_nan=False, ensure_ascii=False).encode()


def model(**report: object) -> ModelView:
    return ModelView("id", "owner/name", True, JobState("x-model-1", report=json.dumps(report)))


def test_a_lie_of_a_download_ends_in_its_own_status() -> None:
    """None of it raises, and the API server takes all of it."""
    lies = model(phase="Failed", reason="no word\n", message="no\x00 " * 2000, commit=["x"], totalBytes=10**17)
    assert model_diagnosis(lies, [], "ns") == ("Failed", ("no  " * 256)[:1023] + "…")
    status = model_status(lies, None)
    assert (status.revision, status.total_bytes) == ("", 0)
    assert model_diagnosis(model(phase={}, totalBytes=True), [], "ns").reason == "Starting"
    assert model_status(model(commit="x" * 5000), None).revision == "x" * 127 + "…"


@pytest.mark.parametrize("text", [*NONSENSE, '{"total": true, "completed": 1, "failed": 1, "message": ""}'])
def test_a_lie_of_a_runner_ends_in_its_own_status(text: str) -> None:
    pod = PodSummary("nightly-0", None, "", phase="Failed", report=text)
    inputs = BatchStatusInputs("ns", 1, "", JobState("nightly", "Failed", "BackoffLimitExceeded"), pods=(pod,))
    status = build_batch_status(inputs, previous=BatchStatus(total=5), now=NOW)
    assert (status.phase, status.total) == ("Failed", 5)
    assert status.conditions[0].message == "Pod nightly-0 ended without a message."


def test_what_a_runner_reports_is_read() -> None:
    text = json.dumps({"total": 3, "completed": 2, "failed": 1, "message": "2 of 3\nanswered"})
    pod = PodSummary("nightly-0", None, "", phase="Succeeded", report=text)
    inputs = BatchStatusInputs("ns", 1, "", JobState("nightly", "Complete"), pods=(pod,), seen=Progress(3, 1, 0))
    status = build_batch_status(inputs, previous=BatchStatus(), now=NOW)
    assert status.conditions[0].message == "2 of 3 answered"
