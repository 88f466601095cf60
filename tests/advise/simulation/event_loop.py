"""An API server turn by turn: an event loop with the tokens of every step, and requests that need many turns."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Call = Callable[[], None]
_PART = 128


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
        self._received: deque[list[float]] = deque()
        self._handler, self._waits_for_step = self._handle_outputs(), True
        self._unwritten = [False] * self.running
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
        """Take the tokens of all steps that have ended: `process_outputs_socket` in vllm/v1/engine/core_client.py."""
        self._received += self._came
        self._came.clear()
        if self._waits_for_step:
            self._ready.append(self._go_on)
        self._waits_for_step = False

    def _go_on(self) -> None:
        next(self._handler)

    def _handle_outputs(self) -> Iterator[None]:
        """`output_handler` in vllm/v1/engine/async_llm.py. A step that waits is begun without a turn of the loop."""
        while True:
            while not self._received:
                self._waits_for_step = True
                yield
            given = self._received.popleft()
            for start in range(0, self.running, _PART):
                if start:
                    self._ready.append(self._go_on)
                    yield
                self._process(range(start, min(start + _PART, self.running)))
            self._ready += [self._turn(came, self.turns[1], self._written) for came in given]

    def _process(self, streams: range) -> None:
        """Give streams a token each. One that has not written the token before writes both as one event."""
        self._now += len(streams) * self.token * 0.3
        self._ready += [self._write(stream) for stream in streams if not self._unwritten[stream]]
        for stream in streams:
            self._unwritten[stream] = True

    def _write(self, stream: int) -> Call:
        def write() -> None:
            self._now += self.token * 0.7
            self._unwritten[stream] = False

        return write

    def _written(self, came: float) -> None:
        self.waits.append(self._now - came)
