"""The way of each request by the router's own rule (`spec.router.disaggregation: Adaptive`), in simulated time.

A router pod learns here from its simulated requests, as it does in a cluster. It takes the other ones to have as many
requests, and knows of the caches what it has sent there.

Tests: tests/advise/simulation/test_adaptive.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pdinference.api.names import Role
from pdinference.router.busy import Busy
from pdinference.router.prompt_queue import PromptQueue
from pdinference.router.speeds import Speeds
from pdinference.router.ways import ALL_WAYS, NO_OBJECTIVES, Place, Prediction, Way, WayObjectives, cheapest_first
from pdinference_advise.simulation.arrangement import EngineKind, Split
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.pods import SimulatedPod
from pdinference_advise.simulation.prefix_cache import PrefixCache
from pdinference_advise.simulation.request import Request


@dataclass(slots=True)
class SeenPod:
    """What a router pod knows of a pod.

    Attributes:
        queue: Prompts that it computes.
        answers: Answers that it generates.
        cache: What is in its cache; None if it keeps nothing.
    """

    queue: PromptQueue
    cache: PrefixCache | None
    answers: int = 0

    def uncached(self, arrival: Arrival) -> int:
        """Prompt tokens that it would have to compute: one in any case."""
        return arrival.prompt - (min(self.cache.has(arrival.prefix), arrival.prompt - 1) if self.cache else 0)

    def has(self, blocks: tuple[int, ...]) -> None:
        """Note that its cache has these blocks."""
        if self.cache is not None:
            self.cache.hit(blocks)


@dataclass(slots=True)
class Computing:
    """A prompt that a pod computes.

    Attributes:
        came: When it came.
        tokens: Those that are not in its cache.
        seconds: How long they should take.
        answers: Answers that it generated when the prompt came.
    """

    pod: SimulatedPod
    came: float
    tokens: int
    seconds: float
    answers: int


@dataclass(slots=True)
class SimulatedWays:
    """The ways of all requests of a router pod.

    Attributes:
        clock: The time.
        routers: Number of router pods.
        allowed: The ways to choose from.
        objectives: What requests should keep.
        speeds: What was learned.
    """

    clock: Clock
    routers: int = 1
    allowed: frozenset[Way] = ALL_WAYS
    objectives: WayObjectives = NO_OBJECTIVES
    speeds: Speeds = field(default_factory=Speeds)
    _pods: dict[SimulatedPod, SeenPod] = field(default_factory=dict)

    @classmethod
    def of(cls, clock: Clock, decode: EngineKind, split: Split) -> "SimulatedWays":
        """Those of an arrangement, of which nothing is known yet."""
        kinds = {Role.DECODE: decode, Role.PARAMETER: split.kind}
        speeds = Speeds({role: kind.limits.step_tokens for role, kind in kinds.items()})
        return cls(clock, split.routers, split.allowed, split.objectives, speeds)

    def seen(self, pod: SimulatedPod) -> SeenPod:
        """What it knows of a pod."""
        if pod not in self._pods:
            cache = None if pod.cache is None else PrefixCache(pod.engine.limits.kv_tokens)
            self._pods[pod] = SeenPod(PromptQueue(Busy(lambda: self.clock.now)), cache)
        return self._pods[pod]

    def choose(
        self, arrival: Arrival, parameter: Sequence[SimulatedPod], decode: Sequence[SimulatedPod]
    ) -> Prediction | None:
        """The way of a request that comes now; None if too little is known to choose one, or if it has to wait."""
        if not self.speeds.are_known or not parameter or not decode:
            return None
        places = [[self._place(pod, arrival) for pod in pods] for pods in (parameter, decode)]
        answer, times = self.speeds.answer.at(0), self.speeds.times
        return cheapest_first(answer, places[0], places[1], times, ways=self.allowed, objectives=self.objectives)[0]

    def _place(self, pod: SimulatedPod, arrival: Arrival) -> Place:
        seen = self.seen(pod)
        busy = min(1.0, self.routers * seen.queue.work.share)
        return Place(pod.known, self.answers(pod), self._ahead(pod), seen.uncached(arrival), busy)

    def _ahead(self, pod: SimulatedPod) -> float:
        return self.routers * self.seen(pod).queue.ahead(self.clock.now)

    def answers(self, pod: SimulatedPod) -> int:
        """Answers that a pod generates, by what it knows."""
        return self.routers * self.seen(pod).answers

    def answers_next(self, pod: SimulatedPod) -> None:
        """A pod gets a request that it is to answer."""
        self.seen(pod).answers += 1

    def hands_over(self, request: Request, pod: SimulatedPod) -> None:
        """D gets a request whose prompt P has computed."""
        self.answers_next(pod)
        request.ahead = self._ahead(pod)

    def begins(self, pod: SimulatedPod, arrival: Arrival) -> Computing:
        """A pod gets a prompt."""
        seen = self.seen(pod)
        tokens, answers = seen.uncached(arrival), self.answers(pod)
        seconds = tokens * self.speeds.of(pod.known.observed.role).token
        seen.queue.begin(seconds, self.clock.now)
        return Computing(pod, self.clock.now, tokens, seconds, answers)

    def ended(self, computing: Computing, arrival: Arrival, at: float) -> None:
        """The pod has computed it."""
        seen = self.seen(computing.pod)
        seen.has(arrival.prefix)
        took = seen.queue.end(computing.seconds, computing.came, at)
        self.speeds.computed(computing.pod.known.observed.role, computing.tokens, computing.answers, took)

    def first_token(self, request: Request, pod: SimulatedPod) -> None:
        """The first token of an answer has come."""
        request.beside = self.answers(pod)

    def handed_over(self, request: Request, pod: SimulatedPod) -> None:
        """D has given the first token of a prompt that P computed."""
        self.first_token(request, pod)
        self.seen(pod).has(request.arrival.prefix)
        took = request.first_at - request.prefilled_at
        self.speeds.handed_over(request.arrival.prompt, request.beside, max(0.0, took - request.ahead))

    def answered(self, request: Request, pod: SimulatedPod) -> None:
        """An answer is complete."""
        answer, seen = request.arrival.answer, self.seen(pod)
        seen.answers -= 1
        seen.has(request.arrival.after)
        self.speeds.answer.observe(0, answer)
        if answer > 1:
            seconds = (request.done_at - request.first_at) / (answer - 1)
            beside = (request.beside + self.answers(pod)) / 2
            self.speeds.stepped(pod.known.observed.role, beside, seconds)
