"""Collects the requests of a trace, and checks each number.

Tests: tests/advise/advice/workload/test_traces.py
"""

import math
from typing import Final

from pdinference.api.words import cut
from pdinference_advise.advice.workload.bounds import LONGEST_S, MOST_REQUESTS, MOST_TOKENS, WorkloadError
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.simulation.arrivals import Arrival

_LATEST: Final = 1e13


def left_out(row: int) -> str:
    """The note for a trace that is read up to a row, because it has too many."""
    return f"Only the rows before line {row:,} were read. To use others, cut the file, for example with sed."


class Rows:
    """The requests of a trace.

    Args:
        name: Name of the file, for messages.
        place: What the numbers of rows count.
    """

    def __init__(self, name: str, place: str = "line") -> None:
        self._name = name
        self._place = place
        self._arrivals: list[Arrival] = []
        self._empty = 0
        self._last = -math.inf
        self._unordered = 0

    @property
    def full(self) -> bool:
        """Whether there is no place for another request."""
        return len(self._arrivals) >= MOST_REQUESTS

    def error(self, row: int, problem: str) -> WorkloadError:
        """The error for a row."""
        return WorkloadError(f"{self._name}, {self._place} {row}: {problem}")

    def add(
        self, row: int, *, at: float, prompt: int, answer: int, prefix: tuple[int, ...] = (), kind: str = ""
    ) -> None:
        """Add a request. One without tokens is skipped, because it cannot be served.

        Args:
            row: Its number.
            at: When it came, in seconds.
            prompt: Prompt tokens.
            answer: Tokens of the answer.
            prefix: As in `Arrival.prefix`.
            kind: Its class.

        Raises:
            WorkloadError: A number is out of bounds.
        """
        if not -_LATEST <= at <= _LATEST:
            raise self.error(row, f"the time stamp {at:g} s is out of bounds.")
        for tokens in (prompt, answer):
            if not 0 <= tokens <= MOST_TOKENS:
                raise self.error(row, f"{cut(str(tokens), 20)} tokens are not between 0 and {MOST_TOKENS:,}.")
        if not (prompt and answer):
            self._empty += 1
            return
        self._unordered += at < self._last
        self._last = max(self._last, at)
        self._arrivals.append(Arrival(at, prompt, answer, prefix, kind))

    def trace(self, source: str, notes: tuple[str, ...] = ()) -> Trace:
        """The trace, in order of time.

        Raises:
            WorkloadError: It has no requests, or is too long.
        """
        if not self._arrivals:
            skipped = f" No row has both prompt and answer tokens ({self._empty:,} were read)." if self._empty else ""
            raise WorkloadError(f"{self._name} has no requests.{skipped}")
        if self._unordered:
            self._arrivals.sort(key=lambda arrival: arrival.at)
        seconds = self._arrivals[-1].at - self._arrivals[0].at
        if seconds > LONGEST_S:
            raise WorkloadError(
                f"{self._name} is {math.ceil(seconds / 86_400):,} days long, more than {LONGEST_S / 86_400:.0f}. Check "
                "its time stamps."
            )
        return Trace.observed(tuple(self._arrivals), source, (*notes, *self._notes()))

    def _notes(self) -> tuple[str, ...]:
        notes = (
            (self._empty, f"Rows without prompt or answer tokens were skipped: {self._empty:,}."),
            (self._unordered, f"Rows that were not in order of time were sorted: {self._unordered:,}."),
        )
        return tuple(text for number, text in notes if number)
