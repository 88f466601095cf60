"""Partial parser of AdmissionReviews of any size: reads only the fields needed to answer or to forward a review.

Tests: tests/admission/test_hostile.py
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pdinference.admission.review import API_VERSION, NotAReviewError
from pdinference.api.bounds import MAX_RAW_SPEC_BYTES, TOO_DEEP, too_large

_NULL: Final = msgspec.Raw(b"null")
_LONG: Final = msgspec.Raw(b'"(too long)"')
_TYPE: Final = ("apiVersion", "kind")
_UID: Final = re.compile(rb'"request"\s{0,8}:\s{0,8}\{\s{0,8}"uid"\s{0,8}:\s{0,8}"([A-Za-z0-9-]{1,128})"')
_BEGINNING: Final = 4096
_MAX_MEMBER: Final = 1024
_METADATA: Final = ("name", "generateName", "namespace", "uid", "generation")
"""The fields of metadata that an examination reads."""

Object = Mapping[str, msgspec.Raw]


class _Request(msgspec.Struct):
    uid: str
    namespace: str = ""
    object: msgspec.Raw = _NULL
    old: msgspec.Raw = msgspec.field(default=_NULL, name="oldObject")


class _Review(msgspec.Struct):
    version: str = msgspec.field(name="apiVersion")
    request: _Request


class RefusedError(Exception):
    """The object is rejected without an examination.

    Attributes:
        uid: The uid of the review; empty if it cannot be read.
    """

    def __init__(self, uid: str, message: str) -> None:
        super().__init__(message)
        self.uid = uid


@dataclass(frozen=True, slots=True)
class Envelope:
    """The parsed fields of a review.

    Attributes:
        uid: The uid of the review.
        namespace: Namespace of the object.
        settled: Whether the object is allowed without an examination, because the spec does not change.
        reduced: The review as JSON, with only the fields that an examination needs.
    """

    uid: str
    namespace: str
    settled: bool
    reduced: bytes


def opened(body: bytes) -> Envelope:
    """Read a review.

    Raises:
        NotAReviewError: The body is not an AdmissionReview.
        RefusedError: The object is too large or too deep.
    """
    try:
        review = msgspec.json.decode(body, type=_Review)
    except RecursionError:
        raise RefusedError(_uid(body), f"The object {TOO_DEEP}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAReviewError(f"expected an AdmissionReview of {API_VERSION}: {str(error)[:200]}") from None
    if review.version != API_VERSION:
        raise NotAReviewError(f"expected an AdmissionReview of {API_VERSION}")
    request = review.request
    try:
        settled, reduced = _reduced(request)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(request.uid, f"The object cannot be read: {str(error)[:200]}.") from None
    return Envelope(request.uid, request.namespace, settled, reduced)


def _reduced(request: _Request) -> tuple[bool, bytes]:
    """Whether the review is settled, and the reduced review if it is not."""
    if _is_null(request.object):
        return True, b""
    new = _members(request.object)
    old = None if _is_null(request.old) else _members(request.old)
    metadata = _members(new.get("metadata", _NULL))
    spec = bytes(new.get("spec", _NULL))
    old_spec = b"" if old is None else bytes(old.get("spec", _NULL))
    if "deletionTimestamp" in metadata or spec == old_spec:
        return True, b""
    if len(spec) > MAX_RAW_SPEC_BYTES:
        raise RefusedError(request.uid, f"The object is not valid.\n  spec: {too_large(len(spec))}")
    parts = {
        "uid": request.uid,
        "object": {**_short(new, _TYPE), "metadata": _short(metadata, _METADATA), "spec": msgspec.Raw(spec)},
        "oldObject": None if old is None else {**_short(old, _TYPE), **_known(old, old_spec)},
    }
    return False, msgspec.json.encode({"apiVersion": API_VERSION, "request": parts})


def _known(old: Object, spec: bytes) -> Mapping[str, Any]:
    """The replaced object: its spec, unless it is too large, and the model facts of its status."""
    model = _members(old.get("status", _NULL)).get("model", _NULL)
    return {
        "metadata": _short(_members(old.get("metadata", _NULL)), _METADATA),
        "spec": msgspec.Raw(spec) if len(spec) <= MAX_RAW_SPEC_BYTES else None,
        "status": {"model": model if len(model) <= MAX_RAW_SPEC_BYTES else None},
    }


def _members(value: msgspec.Raw) -> Object:
    return {} if _is_null(value) else msgspec.json.decode(value, type=dict[str, msgspec.Raw])


def _is_null(value: msgspec.Raw) -> bool:
    return len(value) == len(_NULL) and bytes(value) == b"null"


def _short(found: Object, names: tuple[str, ...]) -> Object:
    """The members with these names. A member that exceeds every valid length is replaced by a text that states this."""
    return {name: found[name] if len(found[name]) <= _MAX_MEMBER else _LONG for name in names if name in found}


def _uid(body: bytes) -> str:
    """The uid of a review that cannot be parsed. The API server writes it first."""
    found = _UID.search(body[:_BEGINNING])
    return found[1].decode() if found else ""
