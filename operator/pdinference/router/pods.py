"""The P and D pods of the revision, and what the router has sent them."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from pdinference.api.names import ENGINE_ROLES, Role

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_TURNS: Final = count(1)


@dataclass(frozen=True, slots=True)
class Observed:
    """A pod as the API server has it.

    Attributes:
        address: Host and port of vLLM; empty before the pod has an address.
        ready: Whether it is ready and not terminating.
    """

    uid: str
    name: str
    role: Role
    address: str
    ready: bool


class UnderWay(Protocol):
    """A request that was sent to a pod."""

    @property
    def began_at(self) -> float:
        """When it was sent, on the clock of the event loop."""

    @property
    def waits_for_kv_cache(self) -> bool:
        """Whether D may still be reading the KV cache of its prompt from P."""

    @property
    def stream(self) -> bool:
        """Whether its first byte comes with the first token, and not with the last one."""

    def abort(self, reason: str) -> None:
        """End it as a failure of the pod."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Pod:
    """A pod, and what the router knows of it from its own requests.

    Attributes:
        tokens: Estimated prompt tokens of the requests that are under way.
        under_way: These requests.
        turn: Number of the last of them, of all that were sent to any pod; 0 before the first.
        heard_at: When it last sent something, or got a request without having another, on the clock of the event loop.
        answered_at: When the last one of the streams was sent that have had their first byte, on the same clock.
        failures: Failures since the last success.
        paused_until: Before this time it gets no requests, because it has failed.
    """

    observed: Observed
    tokens: int = 0
    under_way: set[UnderWay] = field(default_factory=set)
    turn: int = 0
    heard_at: float = 0.0
    answered_at: float = 0.0
    failures: int = 0
    paused_until: float = 0.0

    @property
    def url(self) -> str:
        """Where vLLM listens, without a path."""
        return f"http://{self.observed.address}"

    @property
    def requests(self) -> int:
        """Number of requests that are under way."""
        return len(self.under_way)

    @contextmanager
    def sending(self, request: UnderWay, tokens: int) -> Iterator[None]:
        """Count a request for as long as it is under way."""
        if not self.under_way:
            self.heard()
        self.under_way.add(request)
        self.turn = next(_TURNS)
        self.tokens += tokens
        try:
            yield
        finally:
            self.tokens -= tokens
            self.under_way.discard(request)

    def heard(self) -> None:
        """Note that it sent something."""
        self.heard_at = asyncio.get_running_loop().time()

    def lost(self, reason: str) -> None:
        """End all requests to it."""
        for request in tuple(self.under_way):
            request.abort(reason)


class Pods:
    """All pods.

    Args:
        clock: Monotonic clock, in seconds.

    Attributes:
        complete_since: When a P pod and a D pod became ready together; None while they are not.
        first_complete: When that was the case for the first time; None before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pods: dict[str, Pod] = {}
        self._changed = asyncio.Event()
        self.complete_since: float | None = None
        self.first_complete: float | None = None

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def observe(self, seen: Mapping[str, Observed]) -> None:
        """Take over the pods that the API server has, by uid. Requests to pods that are gone end."""
        for uid in self._pods.keys() - seen.keys():
            self._pods.pop(uid).lost("deleted")
        for uid, observed in seen.items():
            pod = self._pods.setdefault(uid, Pod(observed))
            if observed.ready and not pod.observed.ready:
                pod.failures, pod.paused_until = 0, 0.0
            pod.observed = observed
        if not all(self._ready(role) for role in ENGINE_ROLES):
            self.complete_since = None
        elif self.complete_since is None:
            self.complete_since = self._clock()
            self.first_complete = self.first_complete or self.complete_since
        self._announce()

    def available(self, role: Role) -> list[Pod]:
        """The pods that can get a request now."""
        now = self._clock()
        return [pod for pod in self._ready(role) if pod.paused_until <= now]

    def _ready(self, role: Role) -> list[Pod]:
        return [pod for pod in self._pods.values() if pod.observed.role is role and pod.observed.ready]

    def failed(self, pod: Pod) -> None:
        """Pause a pod after a failure, longer with each further one."""
        pod.paused_until = self._clock() + min(_FIRST_PAUSE_S * 2**pod.failures, _LONGEST_PAUSE_S)
        pod.failures = min(pod.failures + 1, 16)
        self._announce()

    def worked(self, pod: Pod) -> None:
        """Note a success."""
        if pod.failures:
            pod.failures, pod.paused_until = 0, 0.0
            self._announce()

    async def wait(self, role: Role, until: float) -> bool:
        """Wait for a pod that can get a request; False if there was none until then."""
        while not self.available(role):
            pauses = [pod.paused_until for pod in self._ready(role)]
            end = min([until, *pauses])
            try:
                async with asyncio.timeout(max(0.0, end - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                if self._clock() >= until:
                    return bool(self.available(role))
        return True

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
