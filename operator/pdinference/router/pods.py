"""The P and D pods of the revision, and what the router has sent them.

Engines that share a pod (the path HostLocal) are pods of their own here.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from pdinference.api.names import ENGINE_ROLES, PodFault, Role
from pdinference.router.busy import Busy

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_LOST: Final = 2
"""Failures in a row after which an admitted D pod keeps no requests from others. A request is lost after three."""
_TURNS: Final = count(1)


class Admission(IntEnum):
    """Whether requests go to a D pod. The verifier decides that, if a canary is required."""

    HELD = 0
    """No canary of its process has passed."""
    ON_TRUST = 1
    """Its revision serves, and nothing is known against it: its canary waits for P, or P fails its canaries."""
    PROVEN = 2
    """A canary of its process has passed, or it has served."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A pod as the API server has it.

    Attributes:
        address: Host and port of vLLM; empty before the pod has an address.
        ready: Whether it is ready and not terminating.
        group: KV cache gets from P to D within a group alone. Empty for pods with one engine, which all reach another.
        restarts: How often its container has been started again.
    """

    uid: str
    name: str
    role: Role
    address: str
    ready: bool
    group: str = ""
    restarts: int = 0


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
        prompts: How busy a P pod is with prompts.
        heard_at: When it last sent something, or got a request without having another, on the clock of the event loop.
        answered_at: When the last one of the streams was sent that have had their first byte, on the same clock.
        failures: Failures since the last success.
        paused_until: Before this time it gets no requests, because it has failed.
        fault: Why it gives no answers; None once it has answered. The kubelet may never see it: engines that share a
            container are ready while one of them is, and /health does not reach the engine.
        admission: Whether requests go to it, if it is a D pod.
        company: By request: how many others there were when the pod failed one of them.
    """

    observed: Observed
    tokens: int = 0
    under_way: set[UnderWay] = field(default_factory=set)
    turn: int = 0
    prompts: Busy = field(default_factory=Busy)
    heard_at: float = 0.0
    answered_at: float = 0.0
    failures: int = 0
    paused_until: float = 0.0
    fault: PodFault | None = None
    admission: Admission = Admission.HELD
    company: WeakKeyDictionary[UnderWay, int] = field(default_factory=WeakKeyDictionary)

    @property
    def admitted(self) -> bool:
        """Whether it is a D pod that requests go to."""
        return self.admission is not Admission.HELD

    @property
    def withdrawn(self) -> bool:
        """Whether it gets no requests until it answers a probe."""
        return self.fault in {PodFault.REFUSES, PodFault.HUNG}

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

    def failed_one(self, request: UnderWay) -> int:
        """Note that it failed one of its requests; the others may follow. How many others it had then.

        Args:
            request: The request.
        """
        others = len(self.under_way) - 1
        for one in self.under_way:
            self.company[one] = max(others, self.company.get(one, 0))
        return self.company.get(request, 0)

    def lost(self, reason: str) -> None:
        """End all requests to it."""
        for request in tuple(self.under_way):
            request.abort(reason)


class Pods:
    """All pods.

    Args:
        clock: Monotonic clock, in seconds.
        roles: The roles that there are.

    Attributes:
        routers: Number of the router pods that send requests to these pods, with this one.
        complete_since: When a pod of each role, of one group, became ready together; None while they are not.
        first_complete: When that was the case for the first time; None before.
        doubted_at: When a pod or a link last failed, or a pod became ready or unready. An earlier canary may not hold.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, roles: Collection[Role] = ENGINE_ROLES) -> None:
        self.roles = roles
        self.routers = 1
        self._clock = clock
        self._pods: dict[str, Pod] = {}
        self._changed = asyncio.Event()
        self.complete_since: float | None = None
        self.first_complete: float | None = None
        self.doubted_at = -math.inf

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def observe(self, seen: Mapping[str, Observed]) -> None:
        """Take over the pods that the API server has, by uid. Requests to pods that are gone end."""
        for uid in self._pods.keys() - seen.keys():
            self._pods.pop(uid).lost("deleted")
        for uid, observed in seen.items():
            pod = self._pods.setdefault(uid, Pod(observed))
            if (observed.ready, observed.restarts) != (pod.observed.ready, pod.observed.restarts):
                self.doubt()
            if observed.ready and not pod.observed.ready:
                pod.failures, pod.paused_until, pod.fault = 0, 0.0, None
            if not observed.ready or observed.restarts != pod.observed.restarts:
                pod.admission = Admission.HELD
            pod.observed = observed
        if not self._share_a_group(self._ready):
            self.complete_since = None
        elif self.complete_since is None:
            self.complete_since = self._clock()
            self.first_complete = self.first_complete or self.complete_since
        self._announce()

    def available(self, role: Role) -> list[Pod]:
        """The pods that can get a request of a client now."""
        return self._reachable(self._entitled(role))

    def reachable(self, role: Role) -> list[Pod]:
        """The pods that can get a canary now."""
        return self._reachable(self._ready(role))

    def _reachable(self, pods: list[Pod]) -> list[Pod]:
        now = self._clock()
        return [pod for pod in pods if pod.paused_until <= now and not pod.withdrawn]

    def _entitled(self, role: Role) -> list[Pod]:
        """The ready pods that requests may go to, now or after a pause.

        Once a D pod is admitted, those that are not get no requests, unless they have no P pod, and so no KV transfer.
        Without an admitted one that works, each may get them: a revision that served has an answer rather than none.
        """
        ready = self._ready(role)
        if role is not Role.DECODE or not any(pod.admitted and pod.failures < _LOST for pod in ready):
            return ready
        linked = self.linked_decode
        return [pod for pod in ready if pod.admitted or pod not in linked]

    @property
    def linked_decode(self) -> set[Pod]:
        """The ready D pods that have a link to a ready P pod."""
        groups = {pod.observed.group for pod in self._ready(Role.PARAMETER)}
        return {pod for pod in self._ready(Role.DECODE) if pod.observed.group in groups}

    @property
    def complete(self) -> bool:
        """Whether a pod of each role, of one group, can get a request now."""
        return self._share_a_group(self.available)

    def _share_a_group(self, pods: Callable[[Role], list[Pod]]) -> bool:
        return bool(set.intersection(*({pod.observed.group for pod in pods(role)} for role in self.roles)))

    def _ready(self, role: Role) -> list[Pod]:
        return [pod for pod in self._pods.values() if pod.observed.role is role and pod.observed.ready]

    def failed(self, pod: Pod, fault: PodFault | None = None) -> None:
        """Pause a pod after a failure, longer with each further one; with some faults until it answers a probe.

        Args:
            pod: The pod.
            fault: What the failure shows of the pod; None if it may concern one request.
        """
        pod.fault = fault or pod.fault
        if fault is PodFault.REFUSES:
            pod.admission = Admission.HELD  # its process may have ended
        pod.paused_until = self._clock() + min(_FIRST_PAUSE_S * 2**pod.failures, _LONGEST_PAUSE_S)
        pod.failures = min(pod.failures + 1, 16)
        self.doubt()
        self._announce()

    def doubt(self) -> None:
        """Note that the last canary may not hold any more."""
        self.doubted_at = self._clock()

    def admit(self, pod: Pod, admission: Admission) -> None:
        """Let requests go to a D pod if it is still ready, or no more."""
        pod.admission = admission if pod.observed.ready else Admission.HELD
        self._announce()

    def worked(self, pod: Pod) -> None:
        """Note a success."""
        if pod.failures:
            pod.failures, pod.paused_until, pod.fault = 0, 0.0, None
            self._announce()

    def answered(self, pod: Pod) -> None:
        """Note that a pod with a fault has answered a probe."""
        pod.fault = None
        self._announce()

    async def wait(self, holds: Callable[[], object], until: float) -> bool:
        """Wait until something holds for the pods that can get a request; False if it did not until then."""
        while not holds():
            now = self._clock()
            pauses = [pod.paused_until for pod in self if pod.paused_until > now]
            end = min([until, *pauses])
            try:
                async with asyncio.timeout(max(0.0, end - now)):
                    await self._changed.wait()
            except TimeoutError:
                if self._clock() >= until:
                    return bool(holds())
        return True

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
