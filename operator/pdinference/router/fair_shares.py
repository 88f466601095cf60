"""Places of requests in vLLM's queue, by the shares and priorities of clients. Pure but for its clocks.

vLLM takes the waiting request with the lowest priority first (`--scheduling-policy priority`). The order is that of
self-clocked fair queueing (Golestani 1994, "A self-clocked fair queueing scheme for broadband applications"): a request
ends its tokens, divided by its client's share, after the last waiting one of its client, or after the start of the one
that pods have begun last (Goyal, Vin and Cheng 1996, "Start-time fair queueing"). So shares hold although nothing is
known of the pods. The number is a time: when the request would end at the rate of the last minute. It keeps the order
among those that wait, is about the same for several routers, and is never further away than `LONGEST_LEAD_S`, so that
none waits for ever.

Tests: tests/router/test_fair_shares.py
"""

import math
import time
from bisect import bisect_left, bisect_right
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
_EXACT_LEAD_S: Final = 200.0
"""Up to it, the lead is the time until the request should end. With a shorter lead than that, requests that come later
would go behind it too early."""
PRIORITY_STEP_S: Final = 600.0
"""By how much later a request of a higher priority may come and go first. It is longer than the lead, so that a client
with many requests does not fall behind those of a lower priority."""
_STEPS: Final[Mapping[Priority, int]] = {"High": -1, "Normal": 0, "Low": 1}
_PARTS: Final = 8
"""A request that has to go between two others takes this part of the room, so that further ones have their place."""
_RECENT_S: Final = 60.0
"""Time in which the rate is measured."""
_PRESENT_S: Final = 600.0
"""Time after its last request for which a client counts among those that share. If only those with requests did, the
times of a client that came first would be those of one that has the pods for itself."""
_SLOWEST: Final = 1000.0
"""Tokens a second, before requests have ended."""
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
        number: For vLLM, where the lowest one goes first: a time in microseconds, so that there is room between two.
        client: Whose it is.
        prompt: Estimate of its prompt tokens by its length.
        tokens: What it should take, for a share of 1.
        ends: Where it ends in its line.
        waits: Whether pods have not begun with it.
    """

    number: int
    client: str
    prompt: int
    tokens: float
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
        tokens = (prompt * queue.scale + queue.answer) / standing.share
        seconds = self._shares(standing.priority, now) / rate
        at = now + _STEPS[standing.priority] * PRIORITY_STEP_S
        return line.add(client, prompt, tokens, at, seconds)

    def begun(self, place: QueuePlace) -> None:
        """A pod has begun to answer a request."""
        self._line(place).remove(place, begun=True)

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
    """The requests of a priority that wait for pods, in tokens for a share of 1.

    Attributes:
        waiting: The requests by where they end.
        ends: Where the last one of each client ends that has requests here.
        requests: How many each client has here.
        begun: Where the last one started that pods have begun with, since requests wait.
    """

    waiting: list[QueuePlace] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    begun: float = 0.0

    def add(self, client: str, prompt: int, tokens: float, at: float, seconds: float) -> QueuePlace:
        """The place of a request that comes.

        Args:
            client: Whose it is.
            prompt: Estimate of its prompt tokens by its length.
            tokens: What it should take, for a share of 1.
            at: The number of a request that takes nothing, in seconds.
            seconds: What a token takes of all clients' requests.
        """
        if not self.waiting:
            self.begun = 0.0
        ends = max(self.begun, self.ends.get(client, 0.0)) + tokens
        behind = bisect_right(self.waiting, ends, key=_ends)
        lowest, highest = _number(at), _number(at + LONGEST_LEAD_S)
        before = self.waiting[behind - 1].number if behind else lowest
        after = self.waiting[behind].number if behind < len(self.waiting) else highest
        number = _number(at + _lead((ends - self.begun) * seconds))
        if not before < number < after:  # numbers that were given at other times keep the order of those that wait
            number = before + (after - before + _PARTS - 1) // _PARTS
        number = max(lowest, min(number, highest))
        place = QueuePlace(number, client, prompt, tokens, ends)
        self.waiting.insert(behind, place)
        self.ends[client] = ends
        self.requests[client] += 1
        return place

    def remove(self, place: QueuePlace, *, begun: bool = False) -> None:
        """A request does not wait any more: pods have begun with it, or its client has given it up."""
        if not place.waits:
            return
        place.waits = False
        at = bisect_left(self.waiting, place.ends, key=_ends)
        while self.waiting[at] is not place:
            at += 1
        del self.waiting[at]
        if begun:
            self.begun = max(self.begun, place.ends - place.tokens)
        else:
            self.ends[place.client] -= place.tokens
        self.requests[place.client] -= 1
        if not self.requests[place.client]:
            del self.ends[place.client], self.requests[place.client]


def _ends(place: QueuePlace) -> float:
    return place.ends


def _lead(seconds: float) -> float:
    """The time itself, as far as it is short; longer ones approach the longest lead, each in its order."""
    over = max(0.0, seconds - _EXACT_LEAD_S)
    left = LONGEST_LEAD_S - _EXACT_LEAD_S
    return min(seconds, _EXACT_LEAD_S) + left * over / (left + over)


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


def _number(seconds: float) -> int:
    return round(1_000_000 * seconds)
