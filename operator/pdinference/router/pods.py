"""The P and D pods of the revision that can get a request now, and waiting for one.

Tests: tests/router/test_faults.py, tests/router/test_discovery.py, tests/router/test_verification.py
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from pdinference.api.names import ENGINE_ROLES, PodFault, Role
from pdinference.router.failure_reason import FailureReason
from pdinference.router.pod import FAULTS_OF_SERVER, Admission, Observed, Pod

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_MOST_ERRORS: Final = 3
"""Requests in a row that a pod answers with an error and another one without, until it gets them last."""
_LOST: Final = 2
"""Failures in a row after which an admitted D pod keeps no requests from others. A request is lost after three."""


class Pods:
    """All pods.

    Args:
        clock: Monotonic clock, in seconds.
        wall_clock: Unix time, in seconds.
        roles: The roles that there are.

    Attributes:
        routers: Number of the router pods that send requests to these pods, with this one.
        complete_since: When a pod of each role, of one group, became ready together; None while they are not.
        first_complete: When that was the case for the first time; None before.
        doubted_at: When a pod or a link last failed, or a pod became ready or unready. An earlier canary may not hold.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        roles: Collection[Role] = ENGINE_ROLES,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.roles = roles
        self.routers = 1
        self._clock = clock
        self._wall_clock = wall_clock
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
            self._pods.pop(uid).lost(FailureReason.DELETED)
        for uid, observed in seen.items():
            if (pod := self._pods.get(uid)) is None:
                pod = self._pods[uid] = Pod(observed, doubted_at=self._clock())
            if (observed.ready, observed.restarts) != (pod.observed.ready, pod.observed.restarts):
                self.doubt(pod)
            if observed.ready and not pod.observed.ready:
                pod.forgive()
            if not observed.ready or observed.restarts != pod.observed.restarts:
                pod.admission = Admission.HELD
                pod.starts, pod.admitted_at = True, None
            pod.observed = observed
        self._relate_ranks()
        if not self._share_a_group(self._ready):
            self.complete_since = None
        elif self.complete_since is None:
            self.complete_since = self._clock()
            self.first_complete = self.first_complete or self.complete_since
        self._announce()

    def _relate_ranks(self) -> None:
        """Note which pods are data-parallel ranks of one vLLM."""
        by_server: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self._pods.values():
            by_server[pod.observed.server].append(pod)
        for pod in self._pods.values():
            pod.ranks = tuple(one for one in by_server[pod.observed.server] if one is not pod)

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

    def failed(self, pod: Pod, fault: PodFault | None = None, *, whole: bool = False) -> None:
        """Pause a pod after a failure, longer with each further one; with some faults until it answers a probe.

        Args:
            pod: The pod.
            fault: What the failure shows of the pod; None if it may concern one request.
            whole: Whether the other ranks of its vLLM may have failed with it, as they do with some faults.
        """
        self._pause(pod, fault)
        for one in pod.ranks if whole or fault in FAULTS_OF_SERVER else ():
            if fault is None or one.fault is not fault:  # else it is known, and paused
                self._pause(one, fault)
        self._announce()

    def _pause(self, pod: Pod, fault: PodFault | None) -> None:
        if fault is PodFault.REFUSES:  # its process may have ended
            pod.admission = Admission.HELD
            pod.deaths += pod.fault is not fault
        pod.fault = fault or pod.fault
        pod.paused_until = self._clock() + _pause(pod.failures)
        pod.failures = min(pod.failures + 1, 16)
        self.doubt(pod)

    def doubt(self, *pods: Pod) -> None:
        """Note that the last canaries through these pods may not hold any more."""
        self.doubted_at = self._clock()
        for pod in pods:
            pod.doubted_at = self.doubted_at

    def admit(self, pod: Pod, admission: Admission) -> None:
        """Let requests go to a D pod if it is still ready, or no more."""
        pod.admission = admission if pod.observed.ready else Admission.HELD
        if pod.admitted and pod.starts:
            pod.starts, pod.admitted_at = False, self._wall_clock()
        self._announce()

    def worked(self, pod: Pod) -> None:
        """Note a success."""
        was_failing = pod.failures
        pod.forgive()
        if was_failing:
            self._announce()

    def erred(self, pods: Iterable[Pod]) -> None:
        """Note that pods answered a request with an error which another pod then answered without.

        A client may know how to make a pod answer so. Its requests take no pod from the others: a pod with errors still
        gets requests if there is no other one.
        """
        now = self._clock()
        for pod in pods:
            if pod.shunned_until > now:  # requests that it had before are no further sign
                continue
            pod.errors = min(pod.errors + 1, 16)
            if pod.errors >= _MOST_ERRORS:
                pod.shunned_until = now + _pause(pod.errors - _MOST_ERRORS)

    def preferred(self, pods: list[Pod]) -> list[Pod]:
        """Those of some pods that do not answer with errors; all if each does."""
        now = self._clock()
        return [pod for pod in pods if pod.shunned_until <= now] or pods

    def answered(self, pod: Pod) -> None:
        """Note that a pod with a fault has answered a probe."""
        pod.fault = None
        self._announce()

    async def wait(self, holds: Callable[[], object], until: float) -> bool:
        """Wait until something holds for the pods that can get a request; False if it did not until then."""
        while True:
            now = self._clock()  # before the look, which would miss a pause that ends after it
            if holds():
                return True
            if now >= until:
                return False
            pauses = [pod.paused_until for pod in self if pod.paused_until > now]
            with suppress(TimeoutError):
                async with asyncio.timeout(min([until, *pauses]) - now):
                    await self._changed.wait()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _pause(earlier: int) -> float:
    """Seconds, by the number of earlier failures."""
    return min(_FIRST_PAUSE_S * 2.0**earlier, _LONGEST_PAUSE_S)
