"""Whether the KV cache gets from P to D: before requests do, and now and then after that."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pdinference.api.names import (
    ENGINE_ROLES,
    METRIC_VERIFICATION,
    METRIC_VERIFICATION_AGE_SECONDS,
    METRIC_VERIFICATION_DISTANCE,
    METRIC_VERIFICATION_LIMIT,
    METRIC_VERIFICATION_TOKENS,
    Role,
    Verification,
)
from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.planning.transfer import FAULTS
from pdinference.router.canary import Canary, Outcome
from pdinference.router.links import linked
from pdinference.router.pods import Pod, Pods

_LOG = logging.getLogger(__name__)
_LONGEST_S: Final = 60.0
"""Time for a canary. The first prompt of a vLLM may wait for compilations."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_REPEATED_S: Final = 600.0
"""Time between two canaries while requests may come."""
_LOAD: Final = 1000
"""Canaries take one part in so many of the time at most."""
_SELDOM_S: Final = 3600.0
"""Longest time between two canaries at rest, and the time that one waits for rest."""
_ROUND_S: Final = 1.0
"""Longest time between two looks at whether a canary is due."""
_AT_ONCE: Final = 4
"""Canaries before requests come. The first prompt of a vLLM may take a minute, so one after the other takes long."""
_TRIED_AGAIN: Final = frozenset({Verification.WRONG_ANSWER, Verification.COMPUTED_BY_DECODE})
"""Rounding can cause the one once, and requests of clients through other routers the other."""
HELP: Final = {
    METRIC_VERIFICATION: "1 for the state of the verification of the KV transfer, with the D pod that has the fault.",
    METRIC_VERIFICATION_AGE_SECONDS: "Seconds since the canary ended that the state is of.",
    METRIC_VERIFICATION_TOKENS: "Prompt tokens of that canary.",
    METRIC_VERIFICATION_DISTANCE: "Distance of its answers from those of P alone.",
    METRIC_VERIFICATION_LIMIT: "Distance from which on answers are wrong.",
}
"""Description of each series."""


@dataclass(frozen=True, slots=True)
class _Result:
    """A canary that has ended, and the pods that it went through.

    Attributes:
        seconds: How long it took.
        ended_at: When it ended.
    """

    outcome: Outcome
    parameter: str = ""
    decode: str = ""
    seconds: float = 0.0
    ended_at: float = -math.inf

    @property
    def is_fault(self) -> bool:
        """Whether it found a fault."""
        return self.outcome.state in FAULTS


class _Rank(IntEnum):
    """What is known of a D pod; the lower one gets the next canary."""

    UNTRIED = 0
    FAULT = 1
    GOOD = 2


class Verifier(Collector):
    """Sends canaries, and says whether requests may come.

    With `Required`, they may after a canary has gone through to each D pod that was ready when the first one was sent.
    A revision that already serves is not taken from service: then a canary that fails after a restart of the router
    changes only the state that is exported.

    What decides is the last result of each ready D pod, not an order of steps. A D pod without one is next.

    Args:
        clock: The clock of the pods.
    """

    def __init__(
        self, pods: Pods, canary: Canary, mode: VerificationMode, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pods = pods
        self._canary = canary
        self._mode = mode
        self._clock = clock
        self._open = mode != "Required"
        self._failures = 0
        self._results: dict[Pod, _Result] = {}
        """The last result of each D pod that has been ready since then."""
        state = Verification.OFF if mode == "Off" else Verification.PENDING
        self._last = _Result(Outcome(state, "no canary has ended yet"))

    @property
    def state(self) -> Verification:
        """The worst outcome among the D pods."""
        return self._shown.outcome.state

    @property
    def refusal(self) -> str:
        """Why requests must not come; empty if they may."""
        if self._open:
            return ""
        shown = self._shown
        pods = f" from {shown.parameter} to {shown.decode}" if shown.decode else ""
        return f"The KV transfer{pods} is not verified ({shown.outcome.state}): {shown.outcome.reason}."

    async def forever(self) -> None:
        """Send canaries until cancelled."""
        if self._mode == "Off":
            await asyncio.Event().wait()
        while True:
            self._forget()
            if await self._pods.wait(self._is_due, self._clock() + _ROUND_S):
                await self.once()

    async def once(self) -> None:
        """Send the next canary; before requests come, one to each D pod that is not verified."""
        pairs = self._pairs()
        if not pairs:
            return
        serves = self._open or await self._serves()
        due = pairs[:1] if serves else [pair for pair in pairs if self._rank(pair[1]) is not _Rank.GOOD]
        places = asyncio.Semaphore(_AT_ONCE)
        self._results |= await asyncio.gather(*(self._tried(parameter, decode, places) for parameter, decode in due))
        self._forget()
        self._failures = self._failures + 1 if self._faults else 0
        self._open = serves or (bool(self._results) and not self._faults)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series."""
        shown = self._shown
        states = GaugeMetricFamily(METRIC_VERIFICATION, HELP[METRIC_VERIFICATION], labels=["state", "decode"])
        for state in Verification:
            is_shown = state is shown.outcome.state
            states.add_metric([state, shown.decode if is_shown and shown.is_fault else ""], float(is_shown))
        yield states
        for name, value in (
            (METRIC_VERIFICATION_AGE_SECONDS, self._clock() - shown.ended_at),
            (METRIC_VERIFICATION_TOKENS, shown.outcome.tokens),
            (METRIC_VERIFICATION_DISTANCE, shown.outcome.distance),
            (METRIC_VERIFICATION_LIMIT, shown.outcome.limit),
        ):
            yield GaugeMetricFamily(name, HELP[name], value=value)

    @property
    def _faults(self) -> list[_Result]:
        return [result for result in self._results.values() if result.is_fault]

    @property
    def _shown(self) -> _Result:
        """The worst fault; without one the latest result, also of a pod that is gone if there is no other."""
        if faults := self._faults:
            return min(faults, key=lambda one: (FAULTS.index(one.outcome.state), one.decode))
        return max(self._results.values(), key=lambda one: one.ended_at, default=self._last)

    def _forget(self) -> None:
        """Drop the results of D pods that are gone or not ready: what comes back has to be tried again."""
        ready = {pod for pod in self._pods if pod.observed.ready}
        self._results = {pod: result for pod, result in self._results.items() if pod in ready}

    def _is_due(self) -> bool:
        """Whether the next canary may be sent."""
        pairs = self._pairs()
        if not pairs:
            return False
        untried = self._rank(pairs[0][1]) is _Rank.UNTRIED
        passed = self._clock() - self._last.ended_at
        if self._busy:
            return passed >= (self._rare if untried else self._patience)
        # While requests must not come and no fault is known, a pod that had one is gone.
        return untried or passed >= self._pause or not (self._open or self._faults)

    @property
    def _pause(self) -> float:
        """Seconds until the next canary at rest, if each D pod has been tried."""
        tried_again = _FIRST_PAUSE_S * 2 ** min(self._failures - 1, 16) if self._failures else math.inf
        if self._open:
            return max(min(tried_again, _REPEATED_S), min(self._rare, _SELDOM_S))
        return min(tried_again, _LONGEST_PAUSE_S)

    @property
    def _patience(self) -> float:
        """Seconds until the next canary does not wait for rest any longer, if each D pod has been tried."""
        return max(_REPEATED_S if self._failures else _SELDOM_S, self._rare)

    @property
    def _rare(self) -> float:
        """Seconds after which the last canary was a small part of the load."""
        # One that got no answer takes long, but is no load, and what failed may work again soon.
        return 0.0 if self._last.outcome.state is Verification.FAILED else _LOAD * self._last.seconds

    @property
    def _busy(self) -> bool:
        return self._open and any(pod.under_way for pod in self._pods)

    def _rank(self, decode: Pod) -> _Rank:
        result = self._results.get(decode)
        if result is None:
            return _Rank.UNTRIED
        return _Rank.FAULT if result.is_fault else _Rank.GOOD

    def _pairs(self) -> list[tuple[Pod, Pod]]:
        """Each D pod that has a link to a P pod, the next one first, with such a P pod. P pods take turns."""
        parameter, decode = (sorted(self._pods.available(role), key=lambda pod: pod.turn) for role in ENGINE_ROLES)
        pairs: list[tuple[Pod, Pod]] = []
        for pod in sorted(decode, key=self._rank):
            if links := [one for one in parameter if linked(one, pod)]:
                pairs.append((links[len(pairs) % len(links)], pod))
        return pairs

    async def _tried(self, parameter: Pod, decode: Pod, places: asyncio.Semaphore) -> tuple[Pod, _Result]:
        """Send a canary through a pair, and another one if the first may be wrong by chance."""
        async with places:
            began = self._clock()
            outcome = await self._outcome(parameter, decode)
            if outcome.state in _TRIED_AGAIN:
                outcome = await self._outcome(parameter, decode)
        names = parameter.observed.name, decode.observed.name
        ended = self._clock()
        self._last = _Result(outcome, *names, ended - began, ended)
        before = self._results.get(decode)
        if before is None or before.outcome.state is not outcome.state:
            level = logging.WARNING if self._last.is_fault else logging.INFO
            _LOG.log(level, "KV transfer from %s to %s: %s: %s", *names, outcome.state, outcome.reason)
        return decode, self._last

    async def _outcome(self, parameter: Pod, decode: Pod) -> Outcome:
        try:
            async with asyncio.timeout(_LONGEST_S):
                return await self._canary.send(parameter, decode)
        except TimeoutError:
            return Outcome(Verification.FAILED, f"no answer within {_LONGEST_S:g} s")

    async def _serves(self) -> bool:
        """Whether the revision already serves: D pods have answered requests of clients."""
        decode = self._pods.available(Role.DECODE)
        return any(await asyncio.gather(*map(self._canary.serves, decode)))
