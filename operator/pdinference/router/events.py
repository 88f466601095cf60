"""What pods say in errors and in events of streams, in typed forms: pods are not trusted.

Tests: tests/router/test_deaths.py, tests/router/test_broken_answers.py
"""

from http import HTTPStatus
from typing import Final

import msgspec

from pdinference.router.untrusted import NotJsonError, decoded

BOUNDARY: Final = b"\n\n"
DATA: Final = b"data: "
_ENGINE_DIED: Final = "EngineCore encountered an issue."
"""How vLLM's API server begins each error after its engine has died, with status 500 (vllm/v1/engine/exceptions.py)."""
LONGEST_PROBLEM: Final = 65_536
"""Bytes of an error that is read."""


class _Error(msgspec.Struct):
    message: str | None = None
    code: int | str | None = None


class ErrorBody(msgspec.Struct):
    """An error in the form of OpenAI's API or of Anthropic's."""

    error: _Error

    @property
    def engine_died(self) -> bool:
        """Whether it says that the engine of the pod has died."""
        return (self.error.message or "").startswith(_ENGINE_DIED)

    @property
    def is_fault(self) -> bool:
        """Whether it is an error of the server, and not of the request."""
        try:
            return int(self.error.code or HTTPStatus.INTERNAL_SERVER_ERROR) >= HTTPStatus.INTERNAL_SERVER_ERROR
        except ValueError:
            return True


_UNREADABLE: Final = ErrorBody(_Error())


def problem_in(body: bytes | msgspec.Raw) -> ErrorBody | None:
    """The error that a body or the data of an event is; None if it has another form."""
    if len(memoryview(body)) > LONGEST_PROBLEM:
        return None
    try:
        return decoded(body, ErrorBody)
    except NotJsonError:
        return None


def says_engine_died(events: bytes) -> bool:
    """Whether one of some whole events says that the engine of the pod has died."""
    if _ENGINE_DIED.encode() not in events:
        return False
    problems = (problem_at_the_beginning(event) for event in events.split(BOUNDARY))
    return any(problem is not None and problem.engine_died for problem in problems)


def problem_at_the_beginning(stream: bytes) -> ErrorBody | None:
    """The error that the first event of a stream is; None if it is another event.

    Args:
        stream: The first bytes of a stream.
    """
    event = stream.partition(BOUNDARY)[0]
    lines = event.split(b"\n", 2)
    named = lines[0].startswith(b"event: error")
    data = next((line.removeprefix(DATA) for line in lines if line.startswith(DATA)), b"")
    if not named and not data.startswith(b'{"error"'):
        return None
    return problem_in(data) or _UNREADABLE
