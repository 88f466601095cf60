"""A client's request, as the simulation notes it and as the router's policies see it.

Tests: tests/advise/simulation/test_fleet.py, tests/advise/simulation/test_pods_that_come_and_go.py
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from pdinference.router.prefixes import Chain
from pdinference_advise.simulation.arrivals import Arrival

_SESSIONS: Final = 200


@dataclass(eq=False, slots=True)
class Request:
    """A client's request.

    Attributes:
        arrival: What came.
        number: Its number among all requests, from 1.
        first_at: When its first token came.
        done_at: When its last one came; 0 before.
        prefilled_at: When P had computed its prompt.
        pulled_at: When D had its KV cache.
        beside: Answers of its pod at its first token, if that is noted.
        ahead: Seconds of prompts that D had to compute when it got the request from P, if that is noted.
    """

    arrival: Arrival
    number: int
    first_at: float = 0.0
    done_at: float = 0.0
    prefilled_at: float = 0.0
    pulled_at: float = 0.0
    beside: int = 0
    ahead: float = 0.0

    # What the router reads of a request that is under way at a pod, but not in a simulation:
    began_at: ClassVar[float] = 0.0
    stream: ClassVar[bool] = True
    reads_from: ClassVar[None] = None
    placed: ClassVar[bool] = True
    place: ClassVar[int] = 0
    overtaken: bool = False

    @property
    def body(self) -> bytes:
        """The beginning of its trace, or one of its own."""
        return b"%d" % (self.arrival.prefix[0] if self.arrival.prefix else -self.number)

    @property
    def tokens(self) -> int:
        """Prompt tokens."""
        return self.arrival.prompt

    @property
    def session(self) -> str:
        """Key of its session."""
        return str(self.number % _SESSIONS)

    @property
    def chain(self) -> Chain:
        """The blocks that its prompt may have in common with others."""
        return Chain.of(b"%020d" % one for one in self.arrival.prefix)

    def abort(self, reason: str) -> None:
        """Never called: no simulated pod fails."""
