"""Errors of the API server are transient or permanent."""

import json

import pytest

from pdinference.cluster.errors import ApiError


@pytest.mark.parametrize(("status", "transient"), [(429, True), (503, True), (500, True), (403, False), (422, False)])
def test_what_passes_by_itself(status: int, transient: bool) -> None:
    assert ApiError.from_response(status, {}, b"{}").transient is transient


def test_kubernetes_own_words_are_kept() -> None:
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: team"}).encode()
    error = ApiError.from_response(403, {}, body)
    assert (error.reason, error.message) == ("Forbidden", "exceeded quota: team")


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"", b"[1]"])
def test_an_answer_that_is_no_status_is_survived(body: bytes) -> None:
    error = ApiError.from_response(502, {}, body)
    assert error.reason == "Http502"
    assert error.transient


@pytest.mark.parametrize(("header", "seconds"), [("3", 3.0), ("99999", 120.0), ("soon", None), ("-1", 0.0)])
def test_the_servers_wish_to_wait_is_honoured_within_reason(header: str, seconds: float | None) -> None:
    assert ApiError.from_response(429, {"Retry-After": header}, b"").retry_after == seconds


def test_a_schema_violation_is_permanent_although_reported_as_http_500() -> None:
    body = b'{"message": "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): .spec: expected map"}'
    assert not ApiError.from_response(500, {}, body).transient


@pytest.mark.parametrize(
    "body", [b'{"reason": 5, "message": 7}', b'{"message": ["no"]}', b"[" * 100_000], ids=["numbers", "list", "deep"]
)
def test_the_answer_of_a_proxy_may_have_any_form(body: bytes) -> None:
    error = ApiError.from_response(502, {}, body)
    assert (error.reason, error.transient) == ("Http502", True)
    assert error.message == body.decode()[:500]
