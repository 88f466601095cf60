"""Places of requests in vLLM's queue, by the shares and priorities of clients. Pure but for its clocks.

vLLM takes the waiting request with the lowest priority first (`--scheduling-policy priority`). The number is a
time here: when the request would end if the clients of the last minutes shared the pods. A request starts where the
last one of its client ends, and not before the one that pods have begun last (Golestani 1994, "A self-clocked fair
queueing scheme for broadband applications"): so shares hold although the rate of the pods is an estimate. Later
requests have later times, so that none waits for ever, and several routers have about the same times.

Tests: tests/router/test_fair_shares.py
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pdinference.api.v1alpha1.router import Priority
from pdinference.router.usage import Usage

HEADER: Final = "X-Vllm-Priority"
"""vLLM reads it where tokens are generated, before the member `priority` of bodies
(vllm/entrypoints/generate/base/serving.py)."""
LONGEST_LEAD_S: Final = 300.0
"""The most by which requests of another client that come later may go first. It is approached and never reached, so
that the order stays that of shares, however long the queues are and however little is known of the rate."""
PRIORITY_STEP_S: Final = 600.0
"""By how much later a request of a higher priority may come and go first. It is longer than the lead, so that a client
with many requests does not fall behind those of a lower priority."""
_STEPS: Final[Mapping[Priority, int]] = {"High": -1, "Normal": 0, "Low": 1}
_RECENT_S: Final = 60.0
"""Time in which the rate is measured."""
_PRESENT_S: Final = 600.0
"""Time after its last request for which a client counts among those that share. If only those with requests did, the
times of a client that came first would be those of one that has the pods for itself."""
_SLOWEST: Final = 1000.0
"""Tokens a second, before requests have ended. With too low a rate, times run ahead of the clock, and shares still
hold; with too high a rate, they fall behind it, and the order is that of arrival."""
_LATEST: Final = 0.3
"""Of the last request in what is known of a client's requests."""
_SCALES: Final = (0.001, 10.0)
"""Prompt tokens for one of the estimate: an image has few for its bytes, and some languages have many."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a client gets of the pods when requests wait.

    Attributes:
        priority: Its requests go before those of lower priorities.
        share: Its part among the clients of the same priority, compared with their shares.
    """

    priority: Priority = "Normal"
    share: int = 1


@dataclass(slots=True)
class QueuePlace:
    """A request in the queue.

    Attributes:
        number: For vLLM, where the lowest one goes first: a time in milliseconds.
        client: Whose it is.
        prompt: Estimate of its prompt tokens by its length.
        ends: When it would end, in seconds.
        waits: Whether pods have not begun with it.
    """

    number: int
    client: str
    prompt: int
    ends: float
    waits: bool = field(default=True, compare=False)


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
        self._lines: dict[Priority, _Line] = {priority: _Line() for priority in _STEPS}
        self._rate = _Rate(clock())
        self._under_way = 0

    def begin(self, client: str, prompt: int) -> QueuePlace:
        """A request comes.

        Args:
            client: Whose it is.
            prompt: Estimate of its prompt tokens, by its length.
        """
        now, queue, standing = self._clock(), self._queues.setdefault(client, _Queue()), self._standing(client)
        line = self._lines[standing.priority]
        queue.requests += 1
        queue.seen = now
        rate = self._rate.at(now, busy=self._under_way > 0)
        self._under_way += 1
        if not line.waiting:  # no request has a place before which or after which the next ones go
            line.begin(self._shares(standing.priority, now) / rate)
        tokens = prompt * queue.scale + queue.answer
        ends = line.add(client, now, tokens / standing.share)
        lead = LONGEST_LEAD_S * (ends - now) / (LONGEST_LEAD_S + ends - now)
        step = _STEPS[standing.priority] * PRIORITY_STEP_S
        return QueuePlace(_milliseconds(now + step + lead), client, prompt, ends)

    def begun(self, place: QueuePlace) -> None:
        """A pod has begun to answer a request."""
        line = self._line(place)
        line.begun = max(line.begun, place.ends)
        line.remove(place)

    def end(self, place: QueuePlace, usage: Usage | None) -> None:
        """A request has ended.

        Args:
            place: Its place.
            usage: Tokens of its answer; None if there was none.
        """
        queue = self._queues[place.client]
        queue.requests -= 1
        self._line(place).remove(place)
        self._rate.at(self._clock(), busy=True)
        self._under_way -= 1
        if usage is not None:
            queue.learn(place.prompt, usage)
            self._rate.tokens += usage.computed

    def _shares(self, priority: Priority, now: float) -> int:
        """The sum of the shares of clients of a priority that have requests, or had some lately."""
        present = (name for name, queue in self._queues.items() if queue.requests or now - queue.seen < _PRESENT_S)
        standings = map(self._standing, present)
        return sum(one.share for one in standings if one.priority == priority)

    def _standing(self, client: str) -> Standing:
        return self._standings.get(client, Standing())

    def _line(self, place: QueuePlace) -> "_Line":
        return self._lines[self._standing(place.client).priority]


@dataclass(slots=True)
class _Line:
    """The requests of a priority that wait for pods, in seconds of a clock of their own.

    Attributes:
        begun: When the last one of those would have ended that pods have begun with.
        ends: When the last request of each client would end that has requests here.
        waiting: Number of the requests of each.
        seconds: What a token takes of a client with a share of 1.
    """

    begun: float = -math.inf
    ends: dict[str, float] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def begin(self, seconds: float) -> None:
        """Begin anew."""
        self.begun, self.seconds = -math.inf, seconds

    def add(self, client: str, now: float, tokens: float) -> float:
        """When a request would end that comes now, and has so many tokens for a share of 1."""
        starts = max(now, self.begun, self.ends.get(client, now))
        self.ends[client] = ends = starts + tokens * self.seconds
        self.waiting[client] += 1
        return ends

    def remove(self, place: QueuePlace) -> None:
        """A request does not wait any more."""
        if not place.waits:
            return
        place.waits = False
        self.waiting[place.client] -= 1
        if not self.waiting[place.client]:
            del self.waiting[place.client], self.ends[place.client]


@dataclass(slots=True)
class _Queue:
    """What is known of a client's requests.

    Attributes:
        requests: Number of those that have not ended.
        seen: When the last one came.
        answer: Mean tokens of the client's answers.
        scale: Mean prompt tokens for one of the estimate.
    """

    requests: int = 0
    seen: float = 0.0
    answer: float = 0.0
    scale: float = 1.0

    def learn(self, prompt: int, usage: Usage) -> None:
        """Learn from an answer."""
        self.answer += _LATEST * (usage.answer - self.answer)
        least, most = _SCALES
        computed = max(0, usage.computed - usage.answer)
        self.scale += _LATEST * (min(most, max(least, computed / prompt)) - self.scale)


@dataclass(slots=True)
class _Rate:
    """Tokens a second that the pods compute while requests are under way, by what has ended.

    Attributes:
        tokens: Those of the recent time, which fade.
    """

    _at: float
    tokens: float = field(default=0.0, init=False)
    _seconds: float = field(default=0.0, init=False)

    def at(self, now: float, *, busy: bool) -> float:
        """The rate now.

        Args:
            now: The time. A clock that was set back counts as no time.
            busy: Whether requests were under way since the last time. Otherwise nothing has become known.
        """
        if busy:
            passed = max(0.0, now - self._at)
            faded = math.exp(-passed / _RECENT_S)
            self.tokens *= faded
            self._seconds = self._seconds * faded + passed
        self._at = now
        return max(_SLOWEST, self.tokens / max(1.0, self._seconds))


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
