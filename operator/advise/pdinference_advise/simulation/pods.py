"""The pods of a simulated fleet, as the router knows them, so that its own policies choose among them.

Tests: tests/advise/simulation/test_pods_that_come_and_go.py, tests/advise/simulation/test_fleet.py
"""

from dataclasses import dataclass
from heapq import heapreplace
from itertools import count

from pdinference.api.names import Role
from pdinference.router.pod import Observed, Pod
from pdinference_advise.simulation.arrangement import EngineKind
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.engine import SimulatedEngine
from pdinference_advise.simulation.gaps import Gaps
from pdinference_advise.simulation.prefix_cache import PrefixCache
from pdinference_advise.simulation.request import Request

_TURNS = count(1)


@dataclass(eq=False, slots=True)
class SimulatedPod:
    """A pod with one engine.

    Attributes:
        known: What the router knows of it.
        engine: Its engine.
        cache: Its prefix cache; None without.
        reading: When each API server has read its last request, 0 before the first; a heap.
        created_at: When it was created.
        read_seconds: Seconds in which they read requests.
        draining: Whether it gets no more requests, and ends when it has none.
        gone_at: When it ended; None before.
        kept: Prompts whose KV cache it keeps until D has pulled it.
        prompt_tokens: Prompt tokens of the requests that it has finished.
        answer_tokens: Their generated tokens.
    """

    known: Pod
    engine: SimulatedEngine
    cache: PrefixCache | None
    reading: list[float]
    created_at: float = 0.0
    read_seconds: float = 0.0
    draining: bool = False
    gone_at: float | None = None
    kept: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0

    def read(self, now: float, seconds: float) -> float:
        """When a request that comes now is read. The API server that is free first takes it, beside its tokens."""
        servers, reading = self.engine.limits.servers, self.reading
        cpu_seconds = seconds + servers.service.request_cpu
        waiting = self.engine.read(cpu_seconds, self.read_seconds / servers.number / now if now else 0.0)
        read_at = max(now, reading[0]) + seconds
        heapreplace(reading, read_at)
        self.read_seconds += cpu_seconds
        return read_at + waiting

    def begin(self, request: Request, load: int) -> None:
        """Count a request as its load, of so many tokens, as `Pod.sending` does."""
        known = self.known
        known.under_way.add(request)
        known.turn = next(_TURNS)
        known.tokens += load
        known.prompts[request] = load

    def has_begun(self, request: Request) -> None:
        """Note that its prompt is computed, as `Pod.has_begun` does."""
        self.known.prompts.pop(request, None)

    def end(self, request: Request, load: int, answer: int, at: float) -> None:
        """A request has left, with tokens of an answer."""
        known = self.known
        known.under_way.discard(request)
        known.tokens -= load
        known.prompts.pop(request, None)
        self.prompt_tokens += request.arrival.prompt
        self.answer_tokens += answer
        if self.draining:
            self.leave_when_empty(at)

    def leave_when_empty(self, at: float) -> None:
        """End, if it is draining and has neither requests nor KV cache that D has to pull."""
        if self.draining and self.gone_at is None and not self.known.under_way and not self.kept:
            self.gone_at = at

    def cached(self, arrival: Arrival) -> int:
        """Prompt tokens that need not be computed. vLLM computes the last one in any case."""
        if self.cache is None or not arrival.prefix:
            return 0
        return min(self.cache.hit(arrival.prefix), arrival.prompt - 1)

    def remember(self, arrival: Arrival) -> None:
        """It has answered a request, and keeps the KV cache of its answer as well."""
        if self.cache is not None and arrival.after:
            self.cache.hit(arrival.after)


def pod_of(clock: Clock, kind: EngineKind, role: Role, number: int, *, gaps: Gaps, group: str = "") -> SimulatedPod:
    """A pod without requests."""
    name = f"{role}-{number}"
    known = Pod(Observed(name, name, role, name, ready=True, group=group))
    cache = PrefixCache(kind.limits.kv_tokens) if kind.prefix_caching else None
    engine, reading = SimulatedEngine(clock, kind.steps, kind.limits, gaps), [0.0] * kind.limits.servers.number
    return SimulatedPod(known, engine, cache, reading, created_at=clock.now)
