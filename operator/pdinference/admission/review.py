"""Answers AdmissionReviews. Pure.

Tests: tests/admission/test_webhook.py, tests/admission/test_hostile.py
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pdinference.api import names
from pdinference.api.validation import read, read_batch, refusal
from pdinference.checks import examine_any
from pdinference.isolation.calls import Task
from pdinference.manifests import RenderSettings

REVIEW, EARLY_REVIEW = "review", "early-review"
API_VERSION = "admission.k8s.io/v1"
_LONGEST_WARNING = 256
_MOST_WARNINGS = 16
"""The API server truncates warnings to 256 characters each, and to 4096 in total."""

Json = Mapping[str, Any]


class NotAReviewError(ValueError):
    """The body is not an AdmissionReview."""


def review_tasks(settings: RenderSettings) -> Mapping[str, Task]:
    """The functions of the isolated process: from a review as JSON to the response as JSON, without the uid."""

    def answered(payload: bytes, *, early: bool) -> bytes:
        try:
            review = json.loads(payload)
        except (ValueError, RecursionError) as error:  # numbers with thousands of digits, or invalid UTF-8
            return json.dumps(refused("", f"The object cannot be read: {str(error)[:200]}.")).encode()
        return json.dumps(reviewed(review, settings, early=early)).encode()

    return {
        REVIEW: lambda payload: answered(payload, early=False),
        EARLY_REVIEW: lambda payload: answered(payload, early=True),
    }


def refused(uid: str, message: str) -> dict[str, Any]:
    """The response that rejects an object with this message."""
    return _answer(uid, {"allowed": False, "status": _status(message)})


def allowed(uid: str) -> dict[str, Any]:
    """The response that allows an object without an examination."""
    return _answer(uid, {"allowed": True})


def _answer(uid: object, verdict: Json) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": {"uid": uid, **verdict}}


def _status(message: str) -> Json:
    return {"code": HTTPStatus.UNPROCESSABLE_ENTITY, "reason": "Invalid", "message": message}


def reviewed(review: Json, settings: RenderSettings, *, early: bool = False) -> dict[str, Any]:
    """Answer a review.

    Args:
        review: The AdmissionReview.
        settings: Settings of the operator.
        early: Whether the API server has not validated the object against the schema yet. Then only schema violations
            are reported. Other problems are left to the second review, because other webhooks may change the object.

    Raises:
        NotAReviewError: The body is not an AdmissionReview.
    """
    request = review.get("request")
    if review.get("apiVersion") != API_VERSION or not isinstance(request, Mapping) or "uid" not in request:
        raise NotAReviewError(f"expected an AdmissionReview of {API_VERSION}")
    verdict = _early_verdict if early else _verdict
    return _answer(request["uid"], verdict(request, settings))


def _early_verdict(request: Json, settings: RenderSettings) -> dict[str, Any]:
    new = request.get("object")
    if not isinstance(new, Mapping):
        return {"allowed": True}
    named = _named(new)
    reading = read_batch if named.get("kind") == names.BATCH_KIND else read
    problems = reading(named, admitted=True).problems
    return _verdict({**request, "object": named}, settings) if problems else {"allowed": True}


def _named(new: Json) -> Json:
    """The object with a name. The API server generates a name from generateName only after this review."""
    metadata = _metadata(new)
    prefix = metadata.get("generateName")
    return {**new, "metadata": {**metadata, "name": f"{prefix}xxxxx"}} if prefix and not metadata.get("name") else new


def _verdict(request: Json, settings: RenderSettings) -> dict[str, Any]:
    new, old = request.get("object"), request.get("oldObject")
    if not isinstance(new, Mapping) or not _changes_the_spec(new, old):
        return {"allowed": True}
    examination = examine_any(new, settings, old=old, admitted=True)
    answer: dict[str, Any] = {"allowed": not examination.problems}
    if examination.problems:
        name = _metadata(new).get("name")
        message = refusal(name, examination.problems, new.get("kind"))
        answer["status"] = _status(message)
    if examination.warnings:
        answer["warnings"] = [_cut(str(warning)) for warning in examination.warnings[:_MOST_WARNINGS]]
    return answer


def _changes_the_spec(new: Json, old: Any) -> bool:
    """Whether the spec changes. Changes of finalizers and labels, and deletions, are always allowed."""
    if "deletionTimestamp" in _metadata(new):
        return False
    return not isinstance(old, Mapping) or new.get("spec") != old.get("spec")


def _metadata(new: Json) -> Json:
    found = new.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_WARNING else f"{text[: _LONGEST_WARNING - 1]}…"
