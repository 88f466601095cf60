"""A P or D pod of the revision, and what the router has sent to it: without I/O, so that a simulation has the same.

Engines that share a pod (the path HostLocal) are pods of their own here, and so are the data-parallel ranks of a vLLM:
each has KV cache of its own, and vLLM sends a request to the rank that a header names.

Tests: tests/router/test_choice.py, tests/router/test_faults.py
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import count
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from pdinference.api.names import RANK_PREFIX, PodFault, Role
from pdinference.router.failure_reason import FailureReason
from pdinference.router.prompt_queue import PromptQueue

_TURNS: Final = count(1)
FAULTS_OF_SERVER: Final = frozenset({PodFault.REFUSES, PodFault.HUNG})
"""Faults of the API server in front of a pod's engine. The pod gets no requests until it answers a probe."""


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
        further_hosts: Addresses of the further nodes of a P instance.
        rank: Number of the data-parallel rank; None if vLLM has one only.
    """

    uid: str
    name: str
    role: Role
    address: str
    ready: bool
    group: str = ""
    restarts: int = 0
    further_hosts: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def server(self) -> str:
        """Uid of its vLLM: the same for all of its ranks."""
        return self.uid if self.rank is None else self.uid.rpartition("/")[0]


def by_rank(engine: Observed, ranks: int) -> Iterator[Observed]:
    """An engine, or each of its data-parallel ranks if it has several."""
    if ranks == 1:
        yield engine
        return
    for rank in range(ranks):
        suffix = f"/{RANK_PREFIX}{rank}"
        yield replace(engine, uid=engine.uid + suffix, name=engine.name + suffix, rank=rank)


class UnderWay(Protocol):
    """A request that was sent to a pod."""

    @property
    def began_at(self) -> float:
        """When it was sent, on the clock of the event loop."""

    @property
    def reads_from(self) -> "Pod | None":
        """The P pod from which D may still be reading the KV cache of its prompt; None if it reads none."""

    @property
    def place(self) -> int:
        """Its place in vLLM's queue, which takes the lowest first; those with the same one in their order."""

    @property
    def overtaken(self) -> bool:
        """Whether a stream has had its first byte that vLLM should have taken later."""

    @overtaken.setter
    def overtaken(self, value: bool) -> None: ...

    @property
    def placed(self) -> bool:
        """Whether the rank computes it that it was sent to; otherwise vLLM chooses one."""

    @property
    def stream(self) -> bool:
        """Whether its first byte comes with the first token, and not with the last one."""

    def abort(self, reason: FailureReason) -> None:
        """End it as a failure of the pod."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Pod:
    """A pod, and what the router knows of it from its own requests.

    Attributes:
        tokens: Estimated prompt tokens of the requests that are under way.
        prompts: Those of the requests whose prompts it may still have to compute: no first byte has come.
        under_way: These requests. Some of them may wait for their clients alone.
        awaited: Number of those for which the router waits for the pod now.
        alone: Whole requests among them that a P pod answers.
        turn: Number of the last of them, of all that were sent to any pod; 0 before the first.
        queue: The prompts that it has to compute (`router.disaggregation: Adaptive`).
        heard_at: When it last sent something, or when the router began to wait for it without doing so already, on the
            clock of the event loop.
        answered_at: When the last one of the streams was sent that have had their first byte, on the same clock.
        failures: Failures since the last success.
        paused_until: Before this time it gets no requests, because it has failed.
        errors: Requests that it answered with an error and another pod without, since the last success.
        shunned_until: Before this time it gets requests only if there is no other pod, because of these errors.
        fault: Why it gives no answers; None once it has answered. The kubelet may never see it: engines that share a
            container are ready while one of them is, and /health does not reach the engine.
        deaths: How often it began to refuse connections: its process may have ended, and its caches with it. Kubernetes
            does not count those of an engine in a container with others.
        admission: Whether requests go to it, if it is a D pod.
        starts: Whether the router has seen it before it was ready, or started again, and sends it no requests yet.
        admitted_at: When it began to send it requests after such a start, in Unix time; None if it did not, or of P.
        doubted_at: When something last happened that may have broken its KV transfer; an earlier canary may not hold.
        company: By request: how many others there were when the pod failed one of them.
        ranks: The other data-parallel ranks of its vLLM, which ends with all of them.
        reading: The reading of its metrics that is under way, for all ranks.
    """

    observed: Observed
    tokens: int = 0
    prompts: dict[UnderWay, int] = field(default_factory=dict)
    under_way: set[UnderWay] = field(default_factory=set)
    awaited: int = 0
    alone: int = 0
    turn: int = 0
    queue: PromptQueue = field(default_factory=PromptQueue)
    heard_at: float = 0.0
    answered_at: float = 0.0
    failures: int = 0
    paused_until: float = 0.0
    errors: int = 0
    shunned_until: float = 0.0
    fault: PodFault | None = None
    deaths: int = 0
    admission: Admission = Admission.HELD
    starts: bool = False
    admitted_at: float | None = None
    doubted_at: float = -math.inf
    company: WeakKeyDictionary[UnderWay, int] = field(default_factory=WeakKeyDictionary)
    ranks: tuple["Pod", ...] = ()
    reading: Any = None  # a future, of which this module knows nothing

    @property
    def together(self) -> tuple["Pod", ...]:
        """The pod and the other ranks of its vLLM."""
        return (self, *self.ranks)

    @property
    def all_placed(self) -> bool:
        """Whether its rank computes all requests that were sent to it."""
        return all(request.placed for request in self.under_way)

    def has_begun(self, stream: UnderWay) -> None:
        """Note the first byte of a stream. Those that wait for KV cache and should have come before are overtaken."""
        self.prompts.pop(stream, None)
        self.answered_at = max(self.answered_at, stream.began_at)
        for one in self.under_way if stream.place else ():  # without places, `answered_at` says it
            if one.reads_from is not None and one.began_at < stream.began_at and one.place <= stream.place:
                one.overtaken = True

    @property
    def admitted(self) -> bool:
        """Whether it is a D pod that requests go to."""
        return self.admission is not Admission.HELD

    @property
    def withdrawn(self) -> bool:
        """Whether it gets no requests until it answers a probe."""
        return self.fault in FAULTS_OF_SERVER

    @property
    def url(self) -> str:
        """Where vLLM listens, without a path."""
        return f"http://{self.observed.address}"

    @property
    def requests(self) -> int:
        """Number of requests that are under way."""
        return len(self.under_way)

    @property
    def answers(self) -> int:
        """Number of answers that are under way: a prompt that P computes for D is none."""
        return self.alone if self.observed.role is Role.PARAMETER else self.requests

    @contextmanager
    def sending(self, request: UnderWay, tokens: int) -> Iterator[None]:
        """Count a request for as long as it is under way."""
        self.under_way.add(request)
        self.turn = next(_TURNS)
        self.tokens += tokens
        self.prompts[request] = tokens
        try:
            yield
        finally:
            self.tokens -= tokens
            self.prompts.pop(request, None)
            self.under_way.discard(request)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count a whole request that it answers although it is a P pod."""
        self.alone += 1
        try:
            yield
        finally:
            self.alone -= 1

    def failed_one(self, request: UnderWay) -> int:
        """Note that it failed one of its requests; the others may follow. How many others it had then.

        Args:
            request: The request.
        """
        others = sum(len(pod.under_way) for pod in self.together) - 1
        for pod in self.together:
            for one in pod.under_way:
                pod.company[one] = max(others, pod.company.get(one, 0))
        return self.company.get(request, 0)

    def forgive(self) -> None:
        """Forget its failures and errors."""
        self.failures, self.paused_until, self.fault = 0, 0.0, None
        self.errors, self.shunned_until = 0, 0.0

    def lost(self, reason: FailureReason) -> None:
        """End all requests to it."""
        for request in tuple(self.under_way):
            request.abort(reason)
