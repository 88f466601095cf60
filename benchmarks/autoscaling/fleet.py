"""The pods of both roles, how they come and go, and the router in front of them."""

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import simpy

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.pods import DecodePod, PrefillPod, Request
from benchmarks.autoscaling.routing import ROUTINGS, Sent, call, routed
from benchmarks.autoscaling.traces import Arrival
from pdinference.api.names import Role
from pdinference.router.pods import Pod as Routed


class Fleet:
    """The pods of both roles and the router.

    Args:
        routing: One of `ROUTINGS`.
        cache_tokens: What the KV cache of a D pod holds.
    """

    def __init__(
        self,
        env: simpy.Environment,
        *,
        replicas: dict[Role, int],
        startup: float,
        seed: int,
        routing: str,
        cache_tokens: int = const.KV_TOKENS,
    ) -> None:
        self.env = env
        self._startup = startup
        self.cache_tokens = cache_tokens
        self._rng = random.Random(f"fleet/{seed}")
        random.seed(seed)  # the policies break ties at random
        self._routing = ROUTINGS[routing]()
        self._requests = 0
        self.finished: list[Request] = []
        self.prefill: list[PrefillPod] = []
        self.decode: list[DecodePod] = []
        for role, number in replicas.items():
            for _ in range(number):
                self._add(role, ready_at=env.now)

    def every(self, role: Role) -> Sequence[PrefillPod | DecodePod]:
        """All pods that the role ever had."""
        return self.prefill if role is Role.PARAMETER else self.decode

    def pods(self, role: Role) -> list[PrefillPod | DecodePod]:
        """The pods that the role should have: those that do not leave."""
        return [pod for pod in self.every(role) if not pod.draining]

    def submit(self, arrival: Arrival) -> None:
        """A client's request."""
        self._requests += 1
        request = Request(arrival, self._requests, arrival.prompt, arrival.output)
        pods = {one.routed: one for one in self.prefill if one.ready}
        prefill = pods[self._choose(Role.PARAMETER, pods, request, request.in_prefill)]
        if self._routing.at_once:
            request.decode = self._choose_decode(request)
        prefill.submit(request)

    def _choose_decode(self, request: Request) -> DecodePod:
        pods = {one.routed: one for one in self.decode if one.ready}
        chosen = pods[self._choose(Role.DECODE, pods, request, request.in_decode)]
        chosen.coming += 1
        return chosen

    def _choose(self, role: Role, pods: Mapping[Routed, object], request: Request, stay: ExitStack) -> Routed:
        """Choose a pod, and count the request as its load until it leaves."""
        seen = call(request.number, request.arrival.prompt)
        chosen = self._routing.choose[role](list(pods), seen)
        stay.enter_context(chosen.sending(Sent(), seen.tokens))
        return chosen

    def _prefilled(self, request: Request) -> None:
        request.in_prefill.close()
        (request.decode or self._choose_decode(request)).submit(request)

    def _finished(self, request: Request) -> None:
        request.in_decode.close()
        self.finished.append(request)

    def scale(self, role: Role, number: int) -> None:
        """Start or drain pods; the youngest go first, as StatefulSet and Deployment would have it."""
        current = self.pods(role)
        for _ in range(number - len(current)):
            spread = self._rng.uniform(1 - const.STARTUP_SPREAD, 1 + const.STARTUP_SPREAD)
            self._add(role, ready_at=self.env.now + self._startup * spread)
        for pod in current[number:][::-1]:
            pod.drain()

    def _add(self, role: Role, ready_at: float) -> None:
        if role is Role.PARAMETER:
            known = routed(role, len(self.prefill))
            self.prefill.append(PrefillPod(self.env, known, ready_at, self._prefilled))
        else:
            known = routed(role, len(self.decode))
            self.decode.append(DecodePod(self.env, known, ready_at, self._finished, self.cache_tokens))
