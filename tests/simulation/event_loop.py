"""An API server turn by turn: an event loop with the tokens of every step, and requests that need many turns."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

Call = Callable[[], None]


@dataclass
class EventLoop:
    """An API server.

    Attributes:
        running: Streams.
        step: Seconds of a step.
        token: CPU seconds of a token: a part of it when it comes, the rest when it is written.
        request: CPU seconds of a request.
        turns: Turns of a request until the engine has it, and from its first token on.
        rate: Requests a second.
        waits: Seconds of each request from when it came to when its first token was written.
    """

    running: int
    step: float
    token: float
    request: float
    turns: tuple[int, int]
    rate: float = 10.0
    waits: list[float] = field(default_factory=list)

    def run(self, until: float) -> "EventLoop":
        """Run it."""
        chance = random.Random(1)  # noqa: S311 - arrivals
        self._now, next_step, next_request = 0.0, self.step, chance.expovariate(self.rate)
        self._ready: deque[Call] = deque()
        self._came: deque[list[float]] = deque()
        self._unwritten = [0] * self.running
        self._computed: list[tuple[float, float]] = []
        while self._now < until:
            if not self._ready:
                self._now = max(self._now, min(next_step, next_request))
            fresh: list[Call] = []
            while next_step <= self._now:
                self._came.append(self._first_tokens(next_step))
                next_step += self.step
            while next_request <= self._now:
                fresh.append(self._turn(next_request, self.turns[0], self._submit))
                next_request += chance.expovariate(self.rate)
            self._ready += [self._receive] * bool(self._came) + fresh
            for _ in range(len(self._ready)):
                self._ready.popleft()()
        return self

    def _submit(self, came: float) -> None:
        self._computed.append((came, self._now))

    def _first_tokens(self, at: float) -> list[float]:
        """Requests whose first token a step gives: those that came before the one before it began."""
        given = [came for came, since in self._computed if since <= at - 2 * self.step]
        self._computed = [(came, since) for came, since in self._computed if since > at - 2 * self.step]
        return given

    def _turn(self, came: float, left: int, then: Callable[[float], None]) -> Call:
        def turn() -> None:
            self._now += self.request / sum(self.turns)
            if left > 1:
                self._ready.append(self._turn(came, left - 1, then))
            else:
                then(came)

        return turn

    def _receive(self) -> None:
        """Tokens of all steps that have ended."""
        given: list[float] = []
        while self._came:
            given += self._came.popleft()
            self._now += self.running * self.token * 0.3
            self._unwritten = [number + 1 for number in self._unwritten]
        streams = [stream for stream, number in enumerate(self._unwritten) if number]
        self._ready += [self._write(stream) for stream in streams]
        self._ready += [self._turn(came, self.turns[1], self._written) for came in given]

    def _write(self, stream: int) -> Call:
        def write() -> None:
            if self._unwritten[stream]:
                self._now += self.token * 0.7
            self._unwritten[stream] = 0

        return write

    def _written(self, came: float) -> None:
        self.waits.append(self._now - came)
