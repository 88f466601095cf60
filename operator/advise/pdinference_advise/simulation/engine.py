"""One vLLM engine: continuous batching with chunked prefill, as its scheduler does it.

Source: `schedule` in vllm/v1/core/sched/scheduler.py. Running requests get their token first, then prompts under way,
then waiting ones in order, up to the tokens of a step. A waiting request that has no room in the KV cache holds up
those behind it; if a running one has none, the last that came loses its blocks and computes them again.

Steps without prompt tokens are not simulated one by one: between two events the time of n of them is a polynomial.
Such a run begins with one longer step where requests have just joined.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from pdinference.memory.settings import Settings
from pdinference.performance.service import SERVICE, Service
from pdinference.performance.step import StepModel
from pdinference_advise.simulation.api_servers import ApiServers
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.gaps import Gaps
from pdinference_advise.simulation.job import Job


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What an engine can hold.

    Attributes:
        step_tokens: `max-num-batched-tokens`.
        requests: `max-num-seqs`.
        kv_tokens: Tokens of its KV cache.
        block: Tokens of a block.
        servers: Its API servers.
        lookahead: Whether a step is scheduled while the one before runs, so that a new request misses one
            (asynchronous scheduling, `step_with_batch_queue` in vllm/v1/engine/core.py).
    """

    step_tokens: int
    requests: int
    kv_tokens: int
    block: int
    servers: ApiServers
    lookahead: bool = True

    @classmethod
    def of(cls, settings: Settings, kv_tokens: int, service: Service = SERVICE, servers: int = 1) -> "EngineLimits":
        """The limits of a vLLM with these settings.

        Args:
            settings: Its settings.
            kv_tokens: Tokens of its KV cache.
            service: Times of its API servers.
            servers: Number of them (`api-server-count`).
        """
        return cls(
            step_tokens=settings.max_num_batched_tokens,
            requests=settings.max_num_seqs,
            kv_tokens=kv_tokens,
            block=settings.block_size,
            servers=ApiServers(servers, service),
        )


class RequestProgress(NamedTuple):
    """Counters of an engine, as its metrics report them.

    Attributes:
        generated: Tokens.
        decoded: Those of them that came after another token of the same request.
        token_seconds: Sum of the gaps before them.
        kv_used: KV tokens in use.
    """

    generated: int
    decoded: int
    token_seconds: float
    kv_used: float


_Run = tuple[float, float, float, float, int, float]
"""Steps without prompts, one after the other. A tuple, because there is one for each few steps:

- seconds of a longer step before the others, in which requests join or which follows a prompt; 0 without it,
- when the others begin,
- seconds of the first one of them,
- seconds that each takes longer than the one before,
- number of them,
- seconds that they take together.
"""


class _ByRunning(dict[int, float]):
    """Seconds by the number of running requests. CPython 3.11 is slower to call `functools.cache`."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        super().__init__()
        self._seconds = seconds

    def __missing__(self, running: int) -> float:
        seconds = self[running] = self._seconds(running)
        return seconds


@dataclass(eq=False, slots=True)  # without slots, CPython is slower from 31 attributes on
class SimulatedEngine:
    """An engine, with all tensor-parallel ranks.

    Attributes:
        limits: What it can hold.
        busy: Seconds of steps with prompt tokens.
        stepping: Seconds of all steps.
        steps: Steps that gave tokens.
        backlog: Seconds of work that the busiest API server had left at the end of the last step.
        finished: Requests that have ended.
        most_kv: Most KV tokens that were in use at the beginning of a step.
        preemptions: How often a request lost its KV cache.
        prefill_seconds: Seconds from the first step of a prompt to its end, of requests whose KV cache is kept.
    """

    _clock: Clock
    _steps: StepModel
    limits: EngineLimits
    _gaps: Gaps
    busy: float = 0.0
    stepping: float = 0.0
    steps: int = 0
    backlog: float = 0.0
    finished: int = 0
    most_kv: float = 0.0
    preemptions: int = 0
    prefill_seconds: float = 0.0
    _begun: int = 0  # tokens that a prompt gave
    _decoded: int = 0  # tokens that came after another one
    _token_seconds: float = 0.0
    _waiting: deque[Job] = field(default_factory=deque)
    _pulling: int = 0
    _pulled: deque[Job] = field(default_factory=deque)
    _chunked: deque[Job] = field(default_factory=deque)  # prompts that are being computed
    _prompts: int = 0  # tokens of these that are left to compute
    _fresh: list[Job] = field(default_factory=list)  # running requests that have had no token from this engine
    _running: list[tuple[int, int, Job]] = field(default_factory=list)  # a heap, by the step that is the last one
    _numbers: Iterator[int] = field(default_factory=count)
    _context: int = 0  # KV tokens of running requests, less steps times their number
    _reserved: int = 0  # KV tokens of requests that compute their prompt or pull it, and of those that P keeps
    _stepping: bool = False
    _run: _Run | None = None
    _ends: float = 0.0  # when the run ends
    _before: float = -math.inf  # when the step before the next one began
    _launched: float = -math.inf  # when a CPU had started the kernels of the step before the next one
    _after_prefill: float = 0.0  # seconds that the next step takes longer
    _without_kv: _ByRunning = field(init=False)  # `StepModel.decode`, by the number of requests
    _least: float = field(init=False)  # seconds of the shortest step
    # Copies, because CPython 3.11 is slow to read the cached properties of `StepModel`.
    _half_block: float = field(init=False)
    _kv_token: float = field(init=False)
    _window_token: float = field(init=False)

    def __post_init__(self) -> None:
        self._without_kv = _ByRunning(self._steps.decode)
        self._least = self._steps.calibration.shortest_step
        self._half_block = self.limits.block / 2
        self._kv_token, self._window_token = self._steps.kv_token, self._steps.window_token

    @property
    def generated(self) -> int:
        """Tokens."""
        return self._begun + self._decoded

    @property
    def running(self) -> int:
        """Requests that get tokens."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that nothing is computed for yet."""
        return len(self._waiting)

    @property
    def in_steps(self) -> int:
        """Requests that are part of steps, with those whose prompt is being computed."""
        return len(self._running) + len(self._chunked)

    @property
    def pulling(self) -> int:
        """Requests that have KV blocks and are not part of a step yet, because their KV cache is pulled."""
        return self._pulling + len(self._pulled)

    def kv_used(self) -> float:
        """KV tokens in use, with the unused part of each request's last block."""
        return self._context + len(self._running) * (self.steps + self._half_block) + self._reserved

    def read(self, seconds: float, reading: float) -> float:
        """Give a request to an API server, and return the seconds that it waits there for its turns.

        Args:
            seconds: CPU seconds of it.
            reading: Share of the time of API servers that requests take.
        """
        running, waiting = len(self._running), 0.0
        if running:
            step, passed, backlog = self._server_now(running)
            waiting = self.limits.servers.waiting(running, step, min(step, passed), max(0.0, backlog), reading)
        self.backlog += seconds / self.limits.servers.number
        return waiting

    def _server_now(self, running: int) -> tuple[float, float, float]:
        """Seconds of the step under way, those that have passed, and seconds of work that an API server has left."""
        now, backlog = self._clock.now, self.backlog
        if self._run is None:
            passed = now - max(self._before, 0.0)
            return self._decode_seconds(self.steps), passed, backlog - passed
        longer, start, first, growth, _, _ = self._run
        step = self._decode_seconds(self.steps) if longer else first
        seconds, servers = now - start, self.limits.servers
        if seconds < 0:  # during the longer step
            return step, seconds + longer, backlog - seconds - longer
        if longer:
            backlog = servers.backlog(backlog, running, 1, longer)
        steps = _steps_within(seconds, first, growth) - 1
        if steps > 0:
            ended = _seconds_of(steps, first, growth)
            backlog = servers.backlog(backlog, running, steps, ended)
            seconds -= ended
        return step, seconds, backlog - seconds

    def submit(self, job: Job) -> None:
        """Take a request."""
        job.came = self._clock.now
        self._waiting.append(job)
        self._wake()

    def progress(self) -> RequestProgress:
        """The counters now, with the steps of a run under way that have ended."""
        tokens, seconds, running = 0, 0.0, len(self._running)
        if self._run is not None and self._clock.now >= self._run[1]:
            longer, start, first, growth, number, _ = self._run
            passed = min(number, max(0, _steps_within(self._clock.now - start, first, growth) - 1))
            seconds = (longer + _seconds_of(passed, first, growth)) * running
            tokens = (passed + bool(longer)) * running
        return RequestProgress(
            self.generated + tokens, self._decoded + tokens, self._token_seconds + seconds, self.kv_used() + tokens
        )

    def release(self, tokens: int) -> None:
        """Give back KV cache that was kept for somebody who has pulled it."""
        self._reserved -= tokens
        if self._waiting:
            self._wake()

    # Steps

    def _wake(self) -> None:
        """Something came: begin, or end the run of steps early enough to see it."""
        if not self._stepping:
            self._stepping = True
            self._clock.at(self._clock.now, self._begin)
        elif self._run is not None:
            self._shorten()

    def _shorten(self) -> None:
        """End a run of decode steps where the next step can have the new request."""
        assert self._run is not None  # noqa: S101 - for the type checker
        longer, start, first, growth, number, _ = self._run
        since = self._clock.now - start
        within = 0  # during the longer step
        if since >= 0:
            within = (_steps_within(since, first, growth) + self.limits.lookahead) or 1
        if within < number:
            self._make(longer, start, first, growth, within)

    def _begin(self) -> None:
        """Schedule the next step."""
        if self._waiting or self._pulled:
            self._admit()
        if self._chunked:
            self._mixed(*self._chunks())
        elif self._running:
            self._decode()
        else:
            self._stepping = False
            self._before = self._launched = -math.inf

    def _cut(self) -> float:
        """Requests that came later are not part of the step that begins."""
        if not self.limits.lookahead or self._before == -math.inf:
            return math.inf
        others = self._running or self._chunked or (self._waiting and self._waiting[0].came <= self._before)
        return self._before if others else math.inf

    def _admit(self) -> None:
        cut = self._cut()
        while self._pulled and self._pulled[0].came <= cut:
            self._join(self._pulled.popleft())
        if (used := self.kv_used()) > self.most_kv:
            self.most_kv = used
        if self._waiting and self._waiting[0].came <= cut:
            self._admit_waiting(used, cut)

    def _admit_waiting(self, used: float, cut: float) -> None:
        waiting, kv_tokens = self._waiting, self.limits.kv_tokens
        while waiting and waiting[0].came <= cut:
            job = waiting[0]
            need = job.context + job.prefill
            if used + need > kv_tokens and (self._running or self._chunked or self._reserved):
                break  # one that would be alone begins in any case
            if job.pull is None and self._step_is_full():
                break
            waiting.popleft()
            self._reserved += need
            used += need
            if job.pull is not None:
                self._pulling += 1
                job.pull(partial(self._arrived, job))
            else:
                self._prompts += job.prefill
                job.scheduled = self._clock.now
                self._chunked.append(job)

    def _step_is_full(self) -> bool:
        """Whether no further prompt can be part of the step that begins."""
        limits, running = self.limits, len(self._running)
        return running + self._prompts >= limits.step_tokens or running + len(self._chunked) >= limits.requests

    def _arrived(self, job: Job) -> None:
        """Its KV cache was pulled."""
        job.pull = None
        self._pulling -= 1
        job.came = self._clock.now
        self._pulled.append(job)
        self._wake()

    def _chunks(self) -> tuple[list[Job], int, float]:
        """Prompts of the step: those that end in it, tokens, and pairs of a token and one before it."""
        left = self.limits.step_tokens - len(self._running)
        tokens, pairs = 0, 0.0
        ended: list[Job] = []
        while self._chunked and left > 0:
            job = self._chunked[0]
            part = min(job.prefill, left)
            pairs += part * (job.context + part / 2)
            job.context += part
            job.prefill -= part
            tokens += part
            left -= part
            if job.prefill:
                break
            ended.append(self._chunked.popleft())
        self._prompts -= tokens
        return ended, tokens, pairs

    def _kv_seconds(self, after: int) -> float:
        """Seconds of reading the KV cache of the running requests in a step that comes after so many others."""
        seconds = (self._context + len(self._running) * after) * self._kv_token
        if self._window_token:
            window = self._steps.work.window
            seconds += self._window_token * sum(min(job.context + after, window) for _, _, job in self._running)
        return seconds

    def _decode_seconds(self, after: int) -> float:
        """Seconds of a step without prompts that comes after so many others."""
        seconds = self._without_kv[len(self._running)] + self._kv_seconds(after)
        if seconds > self._least:
            return seconds
        return self._least

    def _joining(self, job: Job) -> float:
        """Seconds that the first step of a request takes longer whose KV cache was pulled."""
        return self._steps.joining(math.ceil((job.context + self.steps) / self.limits.block))

    def _ahead(self) -> float:
        """Seconds since a CPU could begin to start the kernels of the step that begins."""
        if not self.limits.lookahead or self._before == -math.inf:
            return 0.0
        return max(0.0, self._clock.now - max(self._before, self._launched))

    def _mixed(self, ended: list[Job], tokens: int, pairs: float) -> None:
        running, kv, ahead = len(self._running), self._kv_seconds(self.steps), self._ahead()
        seconds = self._steps.prefill(
            tokens, pairs, running, len(ended), kv=kv, ahead=ahead, idle=self._before == -math.inf
        )
        self._launched = self._clock.now - ahead + self._steps.launch(tokens + running)
        seconds = max(seconds, self._least)
        self.busy += seconds
        self.stepping += seconds
        self._before = self._clock.now
        self._clock.at(self._clock.now + seconds, partial(self._end_mixed, ended, seconds))

    def _end_mixed(self, ended: list[Job], seconds: float) -> None:
        self._after_prefill = self._steps.calibration.after_prefill if self._running else 0.0
        self._step(seconds, 1, len(ended))
        if self._running:
            self._begin_answers(self._clock.now)
            self._end_answers()
        for job in ended:
            self._token(job)
            self._join(job)
        self._begin()

    def _decode(self) -> None:
        """Run steps without prompts until a request ends, the cache is full, or something comes."""
        number = self._steps_ahead()
        while number < 1:
            self._preempt()
            number = self._steps_ahead()
        start, longer = self._clock.now, 0.0
        first = self._decode_seconds(self.steps)
        if self._fresh or self._after_prefill:
            longer = first + (sum(map(self._joining, self._fresh)) + self._after_prefill)
            self._after_prefill = 0.0
            start += longer
            first = self._decode_seconds(self.steps + 1)
            # After the longer step, one that waits may be admitted. It may have lost its KV cache just now.
            number = 0 if self._waiting or self._pulled else number - 1
        elif self._pulled or (self._waiting and self._waiting[0].came > self._cut()):
            number = 1
        growth = len(self._running) * self._kv_token if first > self._least else 0.0
        self._make(longer, start, first, growth, number)

    def _steps_ahead(self) -> int:
        """Steps until a running request ends, or their KV cache is full; 0 if it is full."""
        running = len(self._running)
        number = self._running[0][0] - self.steps
        room = self.limits.kv_tokens - self.kv_used()
        if running == 1 or number * running <= room:
            return number
        return int(room / running)

    def _make(self, longer: float, start: float, first: float, growth: float, number: int) -> None:
        """Make the steps of a run, in place of those of the run under way."""
        seconds = _seconds_of(number, first, growth)
        self._run = longer, start, first, growth, number, seconds
        self._ends = start + seconds
        self._clock.at(self._ends, self._end_run)

    def _end_run(self) -> None:
        if self._run is None or self._clock.now != self._ends:
            return  # the run has become shorter
        longer, start, first, growth, number, seconds = self._run
        self._run = None
        if longer:
            self._before = start - longer
            self.stepping += longer
            self._step(longer, 1)
            if self._fresh:
                self._begin_answers(start)
        if number:
            self._before = self._clock.now - (first + growth * (number - 1))
            self.stepping += seconds
            self._step(seconds, number)
        if self._waiting:  # else no step with prompts follows
            self._launched = self._before + self._steps.launch(len(self._running))
        if self._running[0][0] <= self.steps:
            self._end_answers()
        self._begin()

    def _step(self, seconds: float, number: int, prompts: int = 0) -> None:
        """Each running request gets a token in each of so many steps, which take some seconds together.

        Args:
            seconds: What the steps take.
            number: Number of steps.
            prompts: Requests whose prompt ends with them, which get a token, too.
        """
        running = len(self._running)
        self.backlog = self.limits.servers.backlog(self.backlog, running + prompts, number, seconds)
        if running:
            self._gaps.add(seconds / number, number * running)
            self._token_seconds += seconds * running
            self._decoded += number * running
        self.steps += number

    def _begin_answers(self, at: float) -> None:
        """The running requests that had no token before have got one."""
        for job in self._fresh:
            job.started = True
            job.first(at)
        self._fresh.clear()

    def _end_answers(self) -> None:
        """The running requests that have had all of their tokens end."""
        running, now, ends = self._running, self._clock.now, self.steps
        while running and running[0][0] <= ends:
            _, _, job = heappop(running)
            self._context -= job.context
            self.finished += 1
            job.done(now)

    def _token(self, job: Job) -> None:
        """The prompt has given its first token."""
        self._begun += 1
        job.left -= 1
        if not job.started:
            job.started = True
            job.first(self._clock.now)

    def _join(self, job: Job) -> None:
        """Begin to decode, or end."""
        if job.left <= 0:
            if job.kept:
                self.prefill_seconds += self._clock.now - job.scheduled
            else:
                self._reserved -= job.context
            self.finished += 1
            job.done(self._clock.now)
            return
        if not job.started:
            self._fresh.append(job)
        self._reserved -= job.context + job.prefill
        job.context += job.prefill
        job.prefill = 0
        job.context -= self.steps
        self._context += job.context
        heappush(self._running, (self.steps + job.left, next(self._numbers), job))

    def _preempt(self) -> None:
        """The request that came last gives its room back, and is computed again when there is some."""
        last = max(self._running, key=lambda entry: entry[1])
        self._running.remove(last)
        heapify(self._running)
        ends, _, job = last
        if job in self._fresh:
            self._fresh.remove(job)
        self._context -= job.context
        job.prefill = job.context + self.steps
        job.context = 0
        job.left = max(1, ends - self.steps)
        job.came = -math.inf
        self.preemptions += 1
        self._waiting.appendleft(job)


def _seconds_of(steps: int, first: float, growth: float) -> float:
    """Seconds of so many steps, each of which takes `growth` longer than the one before."""
    return steps * first + growth * steps * (steps - 1) / 2


def _steps_within(seconds: float, first: float, growth: float) -> int:
    """The least number of steps that take at least so long."""
    if growth <= 0:
        return math.ceil(seconds / first - 1e-9)
    half = first - growth / 2
    return math.ceil((math.sqrt(half * half + 2 * growth * seconds) - half) / growth - 1e-9)
