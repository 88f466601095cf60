"""The pods of both roles, how they come and go, and the router in front of them."""

import random
from collections.abc import Sequence

import simpy

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.pods import DecodePod, PrefillPod, Request
from benchmarks.autoscaling.routing import ROUTINGS
from benchmarks.autoscaling.traces import Arrival
from pdinference.api.names import Role


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
        self._choose = ROUTINGS[routing]()
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
        """A client's request: the router chooses P and D at the same moment."""
        prefill = self._choose.prefill([pod for pod in self.prefill if pod.ready])
        decode = self._choose.decode([pod for pod in self.decode if pod.ready])
        decode.coming += 1
        prefill.submit(Request(arrival, decode, arrival.prompt, arrival.output))

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
            self.prefill.append(PrefillPod(self.env, ready_at, _prefilled))
        else:
            self.decode.append(DecodePod(self.env, ready_at, self.finished.append, self.cache_tokens))


def _prefilled(request: Request) -> None:
    request.decode.submit(request)
