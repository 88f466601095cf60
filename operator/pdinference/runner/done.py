"""The requests that already have a line in the output of an earlier run.

Tests: tests/runner/test_results.py, tests/runner/test_config_map.py, tests/runner/test_hostile_places.py
"""

from collections import Counter
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from pdinference.api.plain_text import plain
from pdinference.runner.ids import IdSet
from pdinference.runner.requests import MOST_LINES, MOST_WRONG


class InvalidOutputLineError(ValueError):
    """A line of the output was not written by a runner."""


class _Line(msgspec.Struct):
    custom_id: str | None
    line: int | None = None


class _Suspect(msgspec.Struct):
    custom_id: Annotated[str, Meta(max_length=512)]


_LINE = msgspec.json.Decoder(_Line)
_SUSPECT = msgspec.json.Decoder(_Suspect)
MOST_SUSPECTS = 10_000


def suspect_line(custom_id: str) -> bytes:
    """A line of the suspects."""
    return msgspec.json.encode(_Suspect(custom_id)) + b"\n"


class Done:
    """Requests that have completed or failed.

    Attributes:
        ids: Their custom_ids.
        lines: Numbers of input lines that are not requests and have an error line.
        completed: Number of completed requests.
        failed: Number of failed requests.
        strikes: By custom_id of a suspect: how often the service stopped while it had the request.
    """

    def __init__(self) -> None:
        self.ids = IdSet()
        self.lines: set[int] = set()
        self.completed = 0
        self.failed = 0
        self.strikes: Counter[str] = Counter()

    def add(self, line: bytes | str, *, answered: bool) -> None:
        """Add a line of the output.

        Raises:
            InvalidOutputLineError: It is not a line of the output format.
        """
        try:
            found = _LINE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidOutputLineError(plain(str(error), 200)) from None
        if not self._is_new(found):
            return
        if len(self.ids) > MOST_LINES or len(self.lines) > MOST_WRONG:
            raise InvalidOutputLineError("there are more lines than a batch can have")
        self.completed += answered
        self.failed += not answered

    def add_strike(self, line: bytes | str) -> None:
        """Add a line of the suspects. One that is not complete, or one too many, counts nothing."""
        if len(self.strikes) < MOST_SUSPECTS:
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.strikes[_SUSPECT.decode(line).custom_id] += 1

    def _is_new(self, found: _Line) -> bool:
        if found.line is not None:
            known = found.line in self.lines
            self.lines.add(found.line)
            return not known
        if found.custom_id is None:
            raise InvalidOutputLineError("it has neither custom_id nor line")
        return self.ids.add(found.custom_id)
