"""The load report counts requests that never end."""

from typing import Any

from e2e.load_report import report


def began(request: str, at: float) -> dict[str, Any]:
    return {"request": request, "event": "began", "at": at}


def ended(request: str, at: float, error: str = "") -> dict[str, Any]:
    outcome = error.partition(":")[0] or "whole"
    found = {"request": request, "event": "ended", "at": at, "seconds": 1.0, "error": error, "outcome": outcome}
    return {**found, "text": "a", "prefill": "parameter"}


def test_a_request_that_never_ends_is_open_among_seven_that_do() -> None:
    lines = [began(f"{client}/1", 0.0) for client in range(8)] + [ended(f"{client}/1", 1.0) for client in range(7)]
    found = report(lines)
    assert (found.began, found.answered, found.failures) == (8, 7, [])
    assert found.open == {"7/1"}
    assert found.overtaken == 0


def test_a_hung_request_is_overtaken_by_those_that_began_later() -> None:
    lines = [began("0/1", 0.0)]
    for number in range(1, 4):
        lines += [began(f"1/{number}", 2.0 * number), ended(f"1/{number}", 2.0 * number + 1)]
    assert report(lines).overtaken == 3


def test_a_failed_request_is_neither_answered_nor_open() -> None:
    found = report([began("0/1", 0.0), ended("0/1", 1.0, "502: no"), began("0/2", 1.2), ended("0/2", 2.0)])
    assert (found.began, found.answered, found.open) == (2, 1, frozenset())
    assert found.failures == ["0/1 after 1.0 s: 502: no"]


def test_the_longest_gap_starts_with_the_first_request() -> None:
    assert report([began("0/1", 0.0), ended("0/1", 70.0), began("0/2", 70.2), ended("0/2", 71.0)]).longest_gap == 70.0


def test_a_load_without_a_line_has_no_request() -> None:
    assert (report([]).began, report([]).longest_gap) == (0, 0.0)
