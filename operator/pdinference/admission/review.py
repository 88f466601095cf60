"""From an AdmissionReview's request to its response: pure."""

import json
from collections.abc import Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.validation import read, read_batch, refusal
from pdinference.checks import examine_any
from pdinference.isolation.calls import Task
from pdinference.manifests import RenderSettings

REVIEW, EARLY_REVIEW = "review", "early-review"
API_VERSION = "admission.k8s.io/v1"
_UNPROCESSABLE = 422
_LONGEST_WARNING = 256
_MOST_WARNINGS = 16
"""The API server cuts warnings that are longer than 256 characters or 4096 together."""

Json = Mapping[str, Any]


class NotAReviewError(ValueError):
    """The body is no AdmissionReview."""


def review_tasks(settings: RenderSettings) -> Mapping[str, Task]:
    """The functions that run in the isolated process: from a review as JSON to the answer as JSON, without the uid."""

    def answered(payload: bytes, *, early: bool) -> bytes:
        try:
            review = json.loads(payload)
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits, text that is no UTF-8
            return json.dumps(refused("", f"The object cannot be read: {str(error)[:200]}.")).encode()
        return json.dumps(reviewed(review, settings, early=early)).encode()

    return {
        REVIEW: lambda payload: answered(payload, early=False),
        EARLY_REVIEW: lambda payload: answered(payload, early=True),
    }


def refused(uid: str, message: str) -> dict[str, Any]:
    """The answer to a review whose object is refused for this reason."""
    return _answer(uid, {"allowed": False, "status": _status(message)})


def allowed(uid: str) -> dict[str, Any]:
    """The answer to a review whose object is not examined."""
    return _answer(uid, {"allowed": True})


def _answer(uid: object, verdict: Json) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": {"uid": uid, **verdict}}


def _status(message: str) -> Json:
    return {"code": _UNPROCESSABLE, "reason": "Invalid", "message": message}


def reviewed(review: Json, settings: RenderSettings, *, early: bool = False) -> dict[str, Any]:
    """Answer a review.

    Args:
        review: The AdmissionReview.
        settings: What the operator was installed with.
        early: Whether the API server has not compared the object with the schema yet. Then only what it would refuse
            next is answered, and everything else is left to the review that follows: somebody else may still change it.

    Raises:
        NotAReviewError: The body is something else.
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
    problems = (read_batch(named) if named.get("kind") == names.BATCH_KIND else read(named)).problems
    return _verdict({**request, "object": named}, settings) if problems else {"allowed": True}


def _named(new: Json) -> Json:
    """With the name that the API server makes of generateName, which it does only after this review."""
    metadata = _metadata(new)
    prefix = metadata.get("generateName")
    return {**new, "metadata": {**metadata, "name": f"{prefix}xxxxx"}} if prefix and not metadata.get("name") else new


def _verdict(request: Json, settings: RenderSettings) -> dict[str, Any]:
    new, old = request.get("object"), request.get("oldObject")
    if not isinstance(new, Mapping) or not _changes_the_spec(new, old):
        return {"allowed": True}
    examination = examine_any(new, settings, old=old)
    answer: dict[str, Any] = {"allowed": not examination.problems}
    if examination.problems:
        name = _metadata(new).get("name")
        message = refusal(name, examination.problems, new.get("kind"))
        answer["status"] = _status(message)
    if examination.warnings:
        answer["warnings"] = [_cut(str(warning)) for warning in examination.warnings[:_MOST_WARNINGS]]
    return answer


def _changes_the_spec(new: Json, old: Any) -> bool:
    """Finalizers and labels can always be changed, and what is being deleted can always go."""
    if "deletionTimestamp" in _metadata(new):
        return False
    return not isinstance(old, Mapping) or new.get("spec") != old.get("spec")


def _metadata(new: Json) -> Json:
    found = new.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_WARNING else f"{text[: _LONGEST_WARNING - 1]}…"
