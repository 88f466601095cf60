"""The simulated pods: P works its queue off in order, D gives every running request a token at a time."""

import heapq
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import simpy

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.traces import Arrival
from pdinference.router.pods import Pod as Routed


@dataclass(slots=True)
class Request:
    """One request on its way.

    Attributes:
        number: Its place among all requests.
        tokens: Tokens of KV cache to hold.
        left: Tokens to generate.
        decode: The D pod that was chosen; None before.
        in_prefill: While it is open, the request counts as load of its P pod.
        in_decode: The same for D.
    """

    arrival: Arrival
    number: int
    tokens: int
    left: float
    decode: "DecodePod | None" = None
    in_prefill: ExitStack = field(default_factory=ExitStack)
    in_decode: ExitStack = field(default_factory=ExitStack)
    first_token_at: float = 0.0
    finished_at: float = 0.0
    prefilled_at: float = 0.0
    preemptions: int = 0


def _at(env: simpy.Environment, when: float, then: Callable[[], None]) -> None:
    event = env.timeout(when - env.now)
    if event.callbacks is not None:  # it is None once the event is over
        event.callbacks.append(lambda _: then())


class Pod:
    """What the two kinds have in common: a time at which it is ready, and a time from which it is gone.

    Attributes:
        routed: What the router knows of it.
    """

    def __init__(
        self, env: simpy.Environment, routed: Routed, ready_at: float, done: Callable[[Request], None]
    ) -> None:
        self.env = env
        self.routed = routed
        self._done = done
        self.created_at = env.now
        self.ready_at = ready_at
        self.draining = False
        self.gone_at: float | None = None

    @property
    def ready(self) -> bool:
        """Whether the router may send it requests."""
        return not self.draining and self.env.now >= self.ready_at

    @property
    def present(self) -> int:
        """Requests in the pod."""
        raise NotImplementedError

    def drain(self) -> None:
        """Take no more requests, and go when the last is done."""
        self.draining = True
        self.leave_when_empty()

    def leave_when_empty(self) -> None:
        """To be called whenever a request has left."""
        if self.draining and self.gone_at is None and not self.present:
            self.gone_at = self.env.now


class PrefillPod(Pod):
    """One prompt at a time, in the order in which they came."""

    def __init__(
        self, env: simpy.Environment, routed: Routed, ready_at: float, done: Callable[[Request], None]
    ) -> None:
        super().__init__(env, routed, ready_at, done)
        self.queue: deque[Request] = deque()
        self.free_at = 0.0
        self.prefill_seconds = 0.0
        self.finished = 0

    @property
    def present(self) -> int:
        """Requests waiting and running."""
        return len(self.queue)

    @property
    def waiting(self) -> int:
        """Requests that nobody works on yet."""
        return max(0, len(self.queue) - 1)

    @property
    def running(self) -> int:
        """1 while it works."""
        return min(1, len(self.queue))

    @property
    def work_seconds(self) -> float:
        """Work that is left: tokens in flight over the rate at which they are worked off."""
        return max(0.0, self.free_at - self.env.now)

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.queue.append(request)
        takes = const.prefill_seconds(request.arrival.prompt)
        self.free_at = max(self.free_at, self.env.now) + takes
        _at(self.env, self.free_at, partial(self._finish, request, takes))

    def _finish(self, request: Request, takes: float) -> None:
        self.queue.popleft()
        self.finished += 1
        self.prefill_seconds += takes
        self._done(request)
        self.leave_when_empty()


@dataclass(order=True, slots=True)
class _Running:
    """A request in decode; it ends when the pod's count of rounds has come to `ends`."""

    ends: float
    number: int
    began: float = field(compare=False)
    request: Request = field(compare=False)


class DecodePod(Pod):
    """All running requests advance together; how fast depends on the KV cache in use. New ones wait for room."""

    def __init__(
        self,
        env: simpy.Environment,
        routed: Routed,
        ready_at: float,
        done: Callable[[Request], None],
        cache_tokens: float,
    ) -> None:
        super().__init__(env, routed, ready_at, done)
        self._cache_tokens = cache_tokens
        self._rounds = 0.0
        self._seen_at = 0.0
        self._running: list[_Running] = []
        self._held = 0.0  # KV tokens in use, less rounds times running requests
        self._numbers = count()
        self._wake_at = float("inf")
        self.coming = 0  # requests that are yet in P
        self.waiting: deque[Request] = deque()
        self.finished = 0
        self.finished_tokens = 0
        self.finished_prompts = 0
        self.generated = 0.0
        self.token_seconds = 0.0

    @property
    def running(self) -> int:
        """Requests that get tokens."""
        return len(self._running)

    @property
    def present(self) -> int:
        """Requests coming, waiting and running."""
        return self.coming + len(self._running) + len(self.waiting)

    def kv_tokens(self) -> float:
        """KV cache in use, in tokens."""
        self._advance()
        return self._used()

    def submit(self, request: Request) -> None:
        """Take a request whose prompt has been prefilled."""
        self.coming -= 1
        request.prefilled_at = self.env.now
        self._advance()
        self.waiting.append(request)
        self._admit()
        self._schedule()

    def _used(self) -> float:
        return self._held + len(self._running) * self._rounds

    def _advance(self) -> None:
        """Up to now, everything went on at the pace of before."""
        passed = self.env.now - self._seen_at
        if passed > 0:
            if self._running:
                rounds = passed / const.token_seconds(self._used())
                self._rounds += rounds
                self.generated += rounds * len(self._running)
                self.token_seconds += passed * len(self._running)
            self._seen_at = self.env.now

    def _admit(self) -> None:
        while self.waiting and self._used() + self.waiting[0].tokens <= self._cache_tokens:
            request = self.waiting.popleft()
            began = self._rounds
            self._held += request.tokens - began
            heapq.heappush(self._running, _Running(began + request.left, next(self._numbers), began, request))
            if request.preemptions:
                # Its KV cache is computed again, here, while the others wait.
                self._seen_at += const.prefill_seconds(request.tokens)
            if not request.first_token_at:
                pull = request.tokens * const.TRANSFER_SECONDS_PER_TOKEN
                step = const.token_seconds(self._used())
                request.first_token_at = self.env.now + const.OVERHEAD_SECONDS + pull + step

    def _remove(self, entry: _Running) -> None:
        self._held -= entry.request.tokens - entry.began

    def _wake(self, at: float) -> None:
        if at != self._wake_at:
            return  # an earlier one came in between
        self._wake_at = float("inf")
        self._advance()
        while self._running and self._running[0].ends <= self._rounds + 1e-6:
            self._finish(heapq.heappop(self._running))
        while len(self._running) > 1 and self._used() > self._cache_tokens:
            self._preempt()
        self._admit()
        self._schedule()
        self.leave_when_empty()

    def _finish(self, entry: _Running) -> None:
        self._remove(entry)
        self.finished += 1
        self.finished_tokens += entry.request.arrival.output
        self.finished_prompts += entry.request.arrival.prompt
        entry.request.finished_at = self.env.now
        self._done(entry.request)

    def _preempt(self) -> None:
        """The request that came last gives its room back, and starts over when there is some."""
        last = max(self._running, key=lambda entry: entry.number)
        self._running.remove(last)
        heapq.heapify(self._running)
        self._remove(last)
        generated = max(0.0, self._rounds - last.began)
        last.request.tokens += round(generated)
        last.request.left = max(1.0, last.request.left - generated)
        last.request.preemptions += 1
        self.waiting.appendleft(last.request)

    def _schedule(self) -> None:
        """Wake up when the next request ends, or when the cache is full."""
        if not self._running:
            return
        pace = const.token_seconds(self._used())
        rounds = self._running[0].ends - self._rounds
        if len(self._running) > 1:
            rounds = min(rounds, (self._cache_tokens - self._used()) / len(self._running) + 1)
        at = max(self._seen_at, self.env.now) + max(rounds, 0.0) * pace
        if at < self._wake_at:
            self._wake_at = at
            _at(self.env, at, partial(self._wake, at))
