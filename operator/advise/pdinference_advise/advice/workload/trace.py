"""Requests in order of time, and parts of them, faster or slower."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pdinference_advise.advice.workload.bounds import LONGEST_S, MOST_RATE, WorkloadError
from pdinference_advise.simulation.arrivals import Arrival

_SHORTEST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of time.

    Attributes:
        arrivals: The requests, at least one, all of them before the end of the load. It begins at 0.
        seconds: Length of the load.
        source: Where the requests are from.
        notes: What a reader of the result should know, in sentences: rows that were skipped, a part that was taken.
    """

    arrivals: tuple[Arrival, ...]
    seconds: float
    source: str
    notes: tuple[str, ...] = ()

    @classmethod
    def observed(cls, arrivals: tuple[Arrival, ...], source: str, notes: tuple[str, ...] = ()) -> "Trace":
        """A trace that begins with its first request, and ends a mean gap after the last one."""
        gaps, first = len(arrivals) - 1, arrivals[0].at
        seconds = (arrivals[-1].at - first) * len(arrivals) / gaps if gaps else 0.0
        moved = tuple(replace(arrival, at=arrival.at - first) for arrival in arrivals) if first else arrivals
        return cls(moved, max(seconds, _SHORTEST_S), source, notes)

    @property
    def rate(self) -> float:
        """Mean number of requests per second."""
        return len(self.arrivals) / self.seconds

    @property
    def token_rate(self) -> float:
        """Mean number of tokens per second, of prompts and answers together."""
        return sum(arrival.prompt + arrival.answer for arrival in self.arrivals) / self.seconds

    def faster(self, factor: float) -> "Trace":
        """The same requests in less time: bursts, lengths and prefixes stay.

        Args:
            factor: How many times the rate, above 0; below 1, the load is slower.
        """
        arrivals = tuple(replace(arrival, at=arrival.at / factor) for arrival in self.arrivals)
        return replace(self, arrivals=arrivals, seconds=self.seconds / factor)

    def at_rate(self, rate: float) -> "Trace":
        """The same requests at another mean rate, in requests per second.

        Raises:
            WorkloadError: The rate or the length would be out of bounds.
        """
        factor = rate / self.rate
        if not (factor > 0 and rate <= MOST_RATE and self.seconds / factor <= LONGEST_S):
            raise WorkloadError(
                f"{factor:g} times the rate of {self.source} ({self.rate:.3g} requests/s) is out of bounds: the rate "
                f"must be at most {MOST_RATE:,.0f} requests/s, and the load at most {LONGEST_S / 86_400:.0f} days long."
            )
        return self.faster(factor)

    def part(self, begin: float, seconds: float) -> "Trace":
        """The requests of a part.

        Args:
            begin: Where it begins, in seconds.
            seconds: Its length. It ends with the load at the latest.

        Raises:
            WorkloadError: There is no request in it.
        """
        end = begin + seconds
        arrivals = tuple(
            replace(arrival, at=arrival.at - begin) for arrival in self.arrivals if begin <= arrival.at < end
        )
        if not arrivals:
            raise WorkloadError(
                f"{self.source} has no requests from {begin:,.0f} s to {end:,.0f} s. It is {self.seconds:,.0f} s long."
            )
        length = min(seconds, self.seconds - begin)
        note = f"Only {length / 60:.3g} min from {begin / 60:.3g} min on are used, of {self.seconds / 60:,.3g} min."
        return replace(self, arrivals=arrivals, seconds=max(length, _SHORTEST_S), notes=(*self.notes, note))

    def busiest(self, seconds: float) -> "Trace":
        """The part of this length with the most tokens, of prompts and answers together; all if it is not longer.

        Raises:
            WorkloadError: The length is not positive.
        """
        if not seconds > 0:
            raise WorkloadError(f"A part of {seconds:g} s has no requests. Give a length above 0.")
        return self if seconds >= self.seconds else self.part(self._busiest(seconds), seconds)

    def _busiest(self, seconds: float) -> float:
        """Where the part with the most tokens begins."""
        most, begin = 0, 0.0
        for tokens, at in self._windows(seconds):
            if tokens > most:
                most, begin = tokens, at
        return min(begin, self.seconds - seconds)

    def _windows(self, seconds: float) -> Iterator[tuple[int, float]]:
        """The tokens from each request on, and its time."""
        tokens, end = 0, 0
        for arrival in self.arrivals:
            while end < len(self.arrivals) and self.arrivals[end].at < arrival.at + seconds:
                tokens += self.arrivals[end].prompt + self.arrivals[end].answer
                end += 1
            yield tokens, arrival.at
            tokens -= arrival.prompt + arrival.answer
