"""The way of a request: client, router, P, the link, D."""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.router.choice import Choose, policies
from pdinference.router.ways import Way
from pdinference_advise.simulation.adaptive import SimulatedWays
from pdinference_advise.simulation.arrangement import Arrangement, Split
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.gaps import Gaps
from pdinference_advise.simulation.job import Job
from pdinference_advise.simulation.link import SimulatedLink
from pdinference_advise.simulation.pods import SimulatedPod, pod_of
from pdinference_advise.simulation.request import Request


class SimulatedFleet:
    """All pods of an arrangement.

    Attributes:
        requests: All requests that have come.
        parameter: All pods that P ever had; none in the mode Aggregated.
        decode: All pods that D ever had.
        links: The ways of the KV cache.
        gaps: Gaps between the tokens of D.
        ways: What each router pod knows, if it chooses ways.
    """

    def __init__(self, clock: Clock, arrangement: Arrangement) -> None:
        self._clock, self._of = clock, arrangement
        split = arrangement.split
        self.requests: list[Request] = []
        self._chance = random.Random(0)  # noqa: S311 - nothing secret
        self.gaps, self._ignored = Gaps(), Gaps()
        self._choose: dict[Role, Choose] = dict(
            policies(arrangement.policy, whole=split is None, chance=self._chance, chain_of=lambda one: one.chain)
        )
        self.parameter: list[SimulatedPod] = []
        self.decode: list[SimulatedPod] = []
        self._serving: dict[Role, list[SimulatedPod]] = {role: [] for role in ENGINE_ROLES}
        self._waiting: dict[Role, list[Callable[[], None]]] = {role: [] for role in ENGINE_ROLES}
        self._by_known: dict[object, SimulatedPod] = {}
        self.links: list[SimulatedLink] = []
        self._link: dict[SimulatedPod, SimulatedLink] = {}
        self._of_group: dict[str, SimulatedLink] = {}
        self.ways: list[SimulatedWays] = []
        if split is not None and split.adaptive:
            self.ways = [SimulatedWays.of(clock, arrangement.kind, split) for _ in range(split.routers)]
        self._router = random.Random(1)  # noqa: S311 - nothing secret
        groups = split.groups if split else 0
        for role, number in ((Role.PARAMETER, split.engines if split else 0), (Role.DECODE, arrangement.engines)):
            for index in range(number):
                self._add(role, clock.now, str(index % groups) if groups else "")

    # Pods

    def every(self, role: Role) -> Sequence[SimulatedPod]:
        """All pods that a role ever had."""
        return self.parameter if role is Role.PARAMETER else self.decode

    def serving(self, role: Role) -> Sequence[SimulatedPod]:
        """The pods of a role that get requests."""
        return self._serving[role]

    def add(self, role: Role, ready_at: float) -> None:
        """Create a pod, which gets requests from a time on.

        Raises:
            ValueError: The pods are in groups, which do not change.
        """
        self._without_groups()
        self._add(role, ready_at, "")

    def drain(self, pod: SimulatedPod) -> None:
        """Give a pod no more requests. It ends when it has none.

        Raises:
            ValueError: The pods are in groups, which do not change.
        """
        self._without_groups()
        pod.draining = True
        serving = self._serving[pod.known.observed.role]
        if pod in serving:
            serving.remove(pod)
        pod.leave_when_empty(self._clock.now)

    def _without_groups(self) -> None:
        if self._of.split is not None and self._of.split.groups:
            raise ValueError("pods of groups (the path HostLocal) do not come and go in the simulation")

    def _add(self, role: Role, ready_at: float, group: str) -> None:
        split, pods = self._of.split, self.parameter if role is Role.PARAMETER else self.decode
        kind, gaps = self._of.kind, self.gaps
        if role is Role.PARAMETER and split is not None:
            kind, gaps = split.kind, self.gaps if split.adaptive else self._ignored
        pod = pod_of(self._clock, kind, role, len(pods), gaps=gaps, group=group)
        pods.append(pod)
        self._by_known[pod.known] = pod
        if split is not None:
            self._connect(pod, split)
        if ready_at <= self._clock.now:
            self._begin_to_serve(pod)
        else:
            self._clock.at(ready_at, partial(self._begin_to_serve, pod))

    def _begin_to_serve(self, pod: SimulatedPod) -> None:
        """A pod is ready. Requests that wait for its role go on."""
        role = pod.known.observed.role
        if not pod.draining:
            self._serving[role].append(pod)
            waiting, self._waiting[role] = self._waiting[role], []
            for go_on in waiting:
                go_on()

    def _connect(self, pod: SimulatedPod, split: Split) -> None:
        """One link for each group, or for each pod of the role that has fewer of them at the beginning."""
        role, group = pod.known.observed.role, pod.known.observed.group
        fewer = Role.PARAMETER if split.engines <= self._of.engines else Role.DECODE
        link = self._of_group.get(group) if group else None
        if link is None and (group or role is fewer):
            link = SimulatedLink(self._clock, split.way)
            self.links.append(link)
        if link is not None:
            self._link[pod] = link
        if group and link is not None:
            self._of_group[group] = link

    # Requests

    def load(self, arrivals: Iterable[Arrival]) -> None:
        """Let requests come, in their order."""
        self._coming = iter(arrivals)
        self._next()

    def _next(self) -> None:
        arrival = next(self._coming, None)
        if arrival is not None:
            self._clock.at(max(arrival.at, self._clock.now), partial(self._came, arrival))

    def _came(self, arrival: Arrival) -> None:
        self.submit(arrival)
        self._next()

    def submit(self, arrival: Arrival) -> None:
        """A client's request."""
        request = Request(arrival, len(self.requests) + 1)
        self.requests.append(request)
        if self._of.split is None:
            self._send_whole(request)
        elif self.ways:
            self._send_adaptively(request, self._of.split, self._router.choice(self.ways))
        else:
            self._send_to_p(request, self._of.split)

    def _send_adaptively(self, request: Request, split: Split, ways: SimulatedWays) -> None:
        serving = self._serving
        chosen = ways.choose(request.arrival, serving[Role.PARAMETER], serving[Role.DECODE])
        if chosen is None:
            self._send_to_p(request, split, ways)
        elif chosen.way is Way.SPLIT:
            self._compute_on_p(request, self._by_known[chosen.pod], split, ways)
        else:
            self._answer_alone(request, self._by_known[chosen.pod], ways)

    def _answer_alone(self, request: Request, pod: SimulatedPod, ways: SimulatedWays) -> None:
        """A pod serves a whole request, because that costs least."""
        load = 0 if pod.known.observed.role is Role.PARAMETER else request.arrival.prompt
        computing = ways.begins(pod, request.arrival)
        pod.begin(request, load)
        ways.answers_next(pod)

        def first(at: float) -> None:
            ways.ended(computing, request.arrival, at)
            ways.first_token(request, pod)
            _first(request, pod, at)

        def done(at: float) -> None:
            _done(request, pod, load, at)
            ways.answered(request, pod)

        self._send(pod, request, request.arrival.answer, first, done)

    def _chosen(self, role: Role, pods: Sequence[SimulatedPod], request: Request) -> SimulatedPod:
        """The pod that gets a request, by the router's own policy."""
        if len(pods) == 1:
            return pods[0]
        return self._by_known[self._choose[role]([pod.known for pod in pods], request)]

    def _read(self, pod: SimulatedPod, tokens: int, seconds: float, then: Callable[[], None]) -> None:
        """An API server of a pod reads one request after the other."""
        service = self._of.service
        read_at = pod.read(self._clock.now, tokens * service.prompt_token)
        hiccup = self._chance.expovariate(1 / service.hiccup) if self._chance.random() < service.hiccup_share else 0.0
        self._clock.at(read_at + seconds + hiccup, then)

    def _send_whole(self, request: Request) -> None:
        serving = self._serving[Role.DECODE]
        if not serving:
            self._waiting[Role.DECODE].append(partial(self._send_whole, request))
            return
        pod = self._chosen(Role.DECODE, serving, request)
        pod.begin(request, request.arrival.prompt)
        done = partial(_done, request, pod, request.arrival.prompt)
        self._send(pod, request, request.arrival.answer, partial(_first, request, pod), done)

    def _send_to_p(self, request: Request, split: Split, ways: SimulatedWays | None = None) -> None:
        serving = self._serving[Role.PARAMETER]
        if not serving:
            self._waiting[Role.PARAMETER].append(partial(self._send_to_p, request, split, ways))
            return
        self._compute_on_p(request, self._chosen(Role.PARAMETER, serving, request), split, ways)

    def _compute_on_p(self, request: Request, pod: SimulatedPod, split: Split, ways: SimulatedWays | None) -> None:
        pod.begin(request, request.arrival.prompt)
        computing = None if ways is None else ways.begins(pod, request.arrival)

        def prefilled(at: float) -> None:
            if ways is not None and computing is not None:
                ways.ended(computing, request.arrival, at)
            pod.kept += 1
            pod.end(request, request.arrival.prompt, 1, at)
            request.prefilled_at = at
            self._hand_over(request, pod, split, ways)

        self._send(pod, request, 1, _nothing, prefilled, kept=True)

    def _send(
        self,
        pod: SimulatedPod,
        request: Request,
        answer: int,
        first: Callable[[float], None],
        done: Callable[[float], None],
        *,
        kept: bool = False,
    ) -> None:
        """Send a request to a pod that computes its prompt."""
        cached = pod.cached(request.arrival)
        job = Job(request.arrival.prompt - cached, cached, answer, first, done, kept=kept)
        self._read(pod, request.arrival.prompt, self._of.service.request, partial(pod.engine.submit, job))

    def _hand_over(self, request: Request, parameter: SimulatedPod, split: Split, ways: SimulatedWays | None) -> None:
        prompt, serving = request.arrival.prompt, self._serving[Role.DECODE]
        if not serving:
            self._waiting[Role.DECODE].append(partial(self._hand_over, request, parameter, split, ways))
            return
        if split.groups:
            group = parameter.known.observed.group
            serving = [pod for pod in serving if pod.known.observed.group == group]
        pod = self._chosen(Role.DECODE, serving, request)
        pod.begin(request, prompt)
        link = self._link.get(parameter) or self._link[pod]
        pull = partial(self._pull, request, parameter, link, prompt * split.token_bytes)
        first: Callable[[float], None] = partial(_first, request, pod)
        done: Callable[[float], None] = partial(_done, request, pod, prompt)
        if ways is not None:
            pod.cached(request.arrival)  # from then on it has the prompt
            ways.hands_over(request, pod)
            first, done = self._learning(request, pod, ways, first, done)
        job = Job(1, prompt - 1, request.arrival.answer, first, done, pull)
        self._read(pod, prompt, self._of.service.hand_over, partial(pod.engine.submit, job))

    @staticmethod
    def _learning(
        request: Request,
        pod: SimulatedPod,
        ways: SimulatedWays,
        first: Callable[[float], None],
        done: Callable[[float], None],
    ) -> tuple[Callable[[float], None], Callable[[float], None]]:
        """What is done at the first and at the last token, with what is learned from them."""

        def first_and_learn(at: float) -> None:
            first(at)
            ways.handed_over(request, pod)

        def done_and_learn(at: float) -> None:
            done(at)
            ways.answered(request, pod)

        return first_and_learn, done_and_learn

    def _pull(
        self, request: Request, parameter: SimulatedPod, link: SimulatedLink, size: float, then: Callable[[], None]
    ) -> None:
        link.move(size, partial(self._pulled, request, parameter, then))

    def _pulled(self, request: Request, parameter: SimulatedPod, then: Callable[[], None]) -> None:
        """D has the KV cache, and P may forget it."""
        request.pulled_at = self._clock.now
        parameter.engine.release(request.arrival.prompt)
        parameter.kept -= 1
        parameter.leave_when_empty(self._clock.now)
        then()


def _first(request: Request, pod: SimulatedPod, at: float) -> None:
    request.first_at = at + pod.engine.backlog
    pod.has_begun(request)


def _done(request: Request, pod: SimulatedPod, load: int, at: float) -> None:
    pod.end(request, load, request.arrival.answer, at)
    pod.remember(request.arrival)
    request.done_at = max(request.first_at, at + pod.engine.backlog)


def _nothing(_at: float) -> None:
    """P's first token is D's to send."""
