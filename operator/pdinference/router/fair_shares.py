"""Places of requests in vLLM's queue, by the shares and priorities of clients. Pure but for its clocks.

vLLM takes the waiting request with the lowest priority first (`--scheduling-policy priority`). The number is a
time here: when the request would end if the clients of the last minutes shared the pods (as the finish times of
Demers, Keshav and Shenker 1989, "Analysis and simulation of a fair queueing algorithm"). So a client with a long queue
goes behind one with a short queue, and no request waits for ever, because later requests have later times.

Tests: tests/router/test_fair_shares.py
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pdinference.api.v1alpha1.router import Priority
from pdinference.router.usage import Usage

HEADER: Final = "X-Vllm-Priority"
"""vLLM reads it where tokens are generated, before the member `priority` of bodies
(vllm/entrypoints/generate/base/serving.py)."""
LONGEST_LEAD_S: Final = 300.0
"""The most by which requests of another client that come later may go first."""
PRIORITY_STEP_S: Final = 600.0
"""By how much later a request of a higher priority may come and go first. It is longer than the lead, so that a client
with many requests does not fall behind those of a lower priority."""
_STEPS: Final[Mapping[Priority, int]] = {"High": -1, "Normal": 0, "Low": 1}
_RECENT_S: Final = 60.0
_PRESENT_S: Final = 600.0
"""Time after its last request for which a client counts among those that share. If only those with requests did, the
times of a client that came first would be those of one that has the pods for itself."""
_SLOWEST: Final = 100.0
"""Tokens a second. Before requests have ended, the rate of the pods is not known."""
_LATEST: Final = 0.3
"""Of the last answer in the mean length of a client's answers."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a client gets of the pods when requests wait.

    Attributes:
        priority: Its requests go before those of lower priorities.
        share: Its part among the clients of the same priority, compared with their shares.
    """

    priority: Priority = "Normal"
    share: int = 1


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A request in the queue.

    Attributes:
        number: For vLLM, where the lowest one goes first: a time in milliseconds.
        client: Whose it is.
        tokens: Tokens that it should take.
    """

    number: int
    client: str
    tokens: float


class FairShares:
    """Gives the requests of clients their places.

    Args:
        standings: By client; others have a share of 1 and the priority Normal.
        clock: Seconds that all router pods count alike.
    """

    def __init__(self, standings: Mapping[str, Standing], *, clock: Callable[[], float] = time.time) -> None:
        self._standings = standings
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._rate = _Rate(clock())

    def begin(self, client: str, prompt: int) -> QueuePlace:
        """A request comes.

        Args:
            client: Whose it is.
            prompt: Estimate of its prompt tokens.
        """
        now, queue = self._clock(), self._queues.setdefault(client, _Queue())
        tokens = prompt + queue.answer
        queue.requests += 1
        queue.tokens += tokens
        queue.seen = now
        standing = self._standing(client)
        lead = queue.tokens / (self._rate.at(now) * standing.share / self._shares(now))
        step = _STEPS[standing.priority] * PRIORITY_STEP_S
        return QueuePlace(_milliseconds(now + step + min(LONGEST_LEAD_S, lead)), client, tokens)

    def end(self, place: QueuePlace, usage: Usage | None) -> None:
        """A request has ended.

        Args:
            place: Its place.
            usage: Tokens of its answer; None if there was none.
        """
        queue = self._queues[place.client]
        queue.requests -= 1
        queue.tokens = queue.tokens - place.tokens if queue.requests else 0.0
        if usage is not None:
            queue.answer += _LATEST * (usage.answer - queue.answer)
            self._rate.add(usage.computed, self._clock())

    def _shares(self, now: float) -> int:
        """The sum of the shares of clients that have requests, or had some lately."""
        present = (name for name, queue in self._queues.items() if queue.requests or now - queue.seen < _PRESENT_S)
        return sum(self._standing(name).share for name in present)

    def _standing(self, client: str) -> Standing:
        return self._standings.get(client, Standing())


@dataclass(slots=True)
class _Queue:
    """A client's requests that have not ended.

    Attributes:
        tokens: What they should take.
        seen: When the last one came.
        answer: Mean tokens of the client's answers.
    """

    requests: int = 0
    tokens: float = 0.0
    seen: float = 0.0
    answer: float = 0.0


@dataclass(slots=True)
class _Rate:
    """Tokens a second that the pods have computed lately, by what has ended."""

    _at: float
    _tokens: float = field(default=0.0, init=False)

    def at(self, now: float) -> float:
        self._decay(now)
        return max(_SLOWEST, self._tokens / _RECENT_S)

    def add(self, tokens: int, now: float) -> None:
        self._decay(now)
        self._tokens += tokens

    def _decay(self, now: float) -> None:
        """Let what was counted fade. A clock that was set back must not make it grow."""
        self._tokens *= math.exp(min(0.0, self._at - now) / _RECENT_S)
        self._at = now


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
