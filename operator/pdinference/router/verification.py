"""Whether the KV cache gets from P to D: before requests do, and now and then after that."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
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
_IDLE_S: Final = 1.0
_GOOD: Final = frozenset({Verification.VERIFIED, Verification.NOT_APPLICABLE})
_TRIED_AGAIN: Final = frozenset({Verification.WRONG_ANSWER, Verification.COMPUTED_BY_DECODE})
"""Rounding can cause the one once, and requests of clients through other routers the other."""
HELP: Final = {
    METRIC_VERIFICATION: "1 for the state of the verification of the KV transfer.",
    METRIC_VERIFICATION_AGE_SECONDS: "Seconds since the last canary ended.",
    METRIC_VERIFICATION_TOKENS: "Prompt tokens of the last canary.",
    METRIC_VERIFICATION_DISTANCE: "Distance of its answers from those of P alone.",
    METRIC_VERIFICATION_LIMIT: "Distance from which on answers are wrong.",
}
"""Description of each series."""


class Verifier(Collector):
    """Sends canaries, and says whether requests may come.

    With `Required`, they may after a canary has gone through once. A revision that already serves is not taken from
    service: then a canary that fails after a restart of the router changes only the state that is exported.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self, pods: Pods, canary: Canary, mode: VerificationMode, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pods = pods
        self._canary = canary
        self._mode = mode
        self._clock = clock
        self._open = mode != "Required"
        self._ended_at = -math.inf
        self._failures = 0
        self._last = Outcome(Verification.OFF if mode == "Off" else Verification.PENDING, "no canary has ended yet")

    @property
    def state(self) -> Verification:
        """The outcome of the last canary."""
        return self._last.state

    @property
    def refusal(self) -> str:
        """Why requests must not come; empty if they may."""
        if self._open:
            return ""
        return f"The KV transfer is not verified ({self._last.state}): {self._last.reason}."

    async def forever(self) -> None:
        """Send canaries until cancelled."""
        if self._mode == "Off":
            await asyncio.Event().wait()
        while True:
            await self._pods.wait(self._pair, math.inf)
            began = self._clock()
            await self.once()
            ended = self._clock()
            await asyncio.sleep(self._pause(ended - began))
            busy_until = ended + self._patience(ended - began)
            while self._busy and self._clock() < busy_until:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(_IDLE_S)

    async def once(self) -> None:
        """Send a canary through the P pod whose last request is the oldest, and such a D pod with a link to it."""
        pair = self._pair()
        if pair is None:
            return
        parameter, decode = pair
        outcome = await self._outcome(parameter, decode)
        if outcome.state in _TRIED_AGAIN:
            outcome = await self._outcome(parameter, decode)
        self._ended_at = self._clock()
        self._failures = 0 if outcome.state in _GOOD else self._failures + 1
        if outcome.state is not self._last.state:
            level = logging.INFO if outcome.state in _GOOD else logging.WARNING
            names = parameter.observed.name, decode.observed.name
            _LOG.log(level, "KV transfer from %s to %s: %s: %s", *names, outcome.state, outcome.reason)
        self._last = outcome
        self._open = self._open or outcome.state in _GOOD or await self._serves()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series."""
        states = GaugeMetricFamily(METRIC_VERIFICATION, HELP[METRIC_VERIFICATION], labels=["state"])
        for state in Verification:
            states.add_metric([state], float(state is self._last.state))
        yield states
        for name, value in (
            (METRIC_VERIFICATION_AGE_SECONDS, self._clock() - self._ended_at),
            (METRIC_VERIFICATION_TOKENS, self._last.tokens),
            (METRIC_VERIFICATION_DISTANCE, self._last.distance),
            (METRIC_VERIFICATION_LIMIT, self._last.limit),
        ):
            yield GaugeMetricFamily(name, HELP[name], value=value)

    def _pause(self, seconds: float) -> float:
        """Seconds until the next canary, after one that took so long."""
        tried_again = _FIRST_PAUSE_S * 2 ** min(self._failures - 1, 16) if self._failures else math.inf
        if self._open:
            return max(min(tried_again, _REPEATED_S), min(self._rare(seconds), _SELDOM_S))
        return min(tried_again, _LONGEST_PAUSE_S)

    def _patience(self, seconds: float) -> float:
        """Seconds until the next canary does not wait for rest any longer, after one that took so long."""
        return max(_REPEATED_S if self._failures else _SELDOM_S, self._rare(seconds))

    def _rare(self, seconds: float) -> float:
        """Seconds after which a canary that took so long was a small part of the load."""
        # One that got no answer takes long, but is no load, and what failed may work again soon.
        return 0.0 if self._last.state is Verification.FAILED else _LOAD * seconds

    @property
    def _busy(self) -> bool:
        return self._open and any(pod.under_way for pod in self._pods)

    def _pair(self) -> tuple[Pod, Pod] | None:
        parameter, decode = (sorted(self._pods.available(role), key=lambda pod: pod.turn) for role in ENGINE_ROLES)
        return next(((one, other) for one in parameter for other in decode if linked(one, other)), None)

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
