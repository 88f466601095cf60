"""Whether the KV cache gets from P to D: before requests do, and now and then after that."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
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
    Verification,
)
from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.transfer_measurements import FAULTS
from pdinference.router.canary import Canary, CanaryOutcome
from pdinference.router.links import linked
from pdinference.router.pod import Admission, Pod
from pdinference.router.pods import Pods

_LOG = logging.getLogger(__name__)
_LONGEST_S: Final = 60.0
"""Time for an answer of D to the first canary. The first prompt of a vLLM may wait for compilations."""
_MOST_DOUBLINGS: Final = 3
"""So often that time is doubled, once after each fault: D may be overloaded."""
_PATIENCE_S: Final = 15.0
"""Time after which a D pod does not wait any longer for a canary that waits for P. Without load a canary takes 0.3 to
3.5 s (ADR 0021). Twice the time for D's metrics (5 s) is shorter, so D has been asked for more by then."""
_OTHERS_S: Final = 2 * _LONGEST_S
"""Time that a new revision waits for other D pods after the first one is admitted: one that does not answer has failed
a canary by then, and had time for another one."""
_LEAST_ADMITTED: Final = 0.5
"""Share of the D pods that a revision needs after that time. So no pod gets more than twice the load that it is for."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
"""Times between canaries to a D pod that is not admitted."""
_REPEATED_S: Final = 600.0
"""Time between two canaries to admitted D pods."""
_DOUBTED_S: Final = WINDOW_S + 60.0
"""Time after a failure until a canary at rest shows whether it lasts. By then the operator's window has no request of
before, so that the canary decides about the status, with time for the operator to read routers."""
_LOAD: Final = 1000
"""Repeated canaries take at most one part in this number of the time."""
_SELDOM_S: Final = 3600.0
"""Longest time between two of them at rest, and the time that one waits for rest."""
_ROUND_S: Final = 1.0
"""Longest time between two looks at whether a canary is due."""
_AT_ONCE: Final = 4
"""Canaries at a time to D pods that had none, and as many to D pods that had one. The first prompt of a vLLM may take a
minute, so one after the other takes long, and pods that never answer must not delay those that join."""
_TRIED_AGAIN: Final = frozenset({Verification.WRONG_ANSWER, Verification.COMPUTED_BY_DECODE})
"""Rounding can cause the one once, and requests of clients through other routers the other."""
HELP: Final = {
    METRIC_VERIFICATION: "1 for the state of the verification of the KV transfer, with the pod that has the fault.",
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
        faults: Number of canaries in a row, up to this one, that found a fault of the D pod.
    """

    outcome: CanaryOutcome
    parameter: str = ""
    decode: str = ""
    seconds: float = 0.0
    ended_at: float = -math.inf
    faults: int = 0

    @property
    def is_fault(self) -> bool:
        """Whether it found a fault."""
        return self.outcome.state in FAULTS

    @property
    def faulty_decode(self) -> str:
        """The D pod whose fault it found; empty without one."""
        return self.decode if self.is_fault and not self.outcome.by_parameter else ""

    @property
    def faulty_parameter(self) -> str:
        """The P pod that failed; empty if none did."""
        return self.parameter if self.outcome.by_parameter else ""


class _Rank(IntEnum):
    """What is known of a D pod; the lower one gets the next canary."""

    UNTRIED = 0
    FAULT = 1
    GOOD = 2


class Verifier(Collector):
    """Sends canaries, and says whether requests may come, and to which D pods.

    With `Required`, a D pod is admitted when its canary has found no fault, or when it has served already. Requests go
    to admitted D pods (`Pods.available`). They may come when all D pods are admitted, or half of them some time after
    the first one; but not while a canary of a D pod got a wrong answer.

    A D pod that joins a revision that serves is admitted on trust if its canary waits for P for long, or if P fails two
    canaries in a row. If a canary finds a fault of the pod, it is not admitted any longer.

    A revision that has served is not taken from service, and neither is a D pod that has passed: a canary that finds a
    fault later changes only the state that is exported.

    What decides is the last result of each ready D pod, not an order of steps.

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
        self._results: dict[Pod, _Result] = {}
        """The last result of each D pod that has been ready since then."""
        self._under_way: dict[Pod, float] = {}
        """The D pods of canaries that have not ended, and when these began; never for one under suspicion."""
        self._first_admitted_at = math.inf
        state = Verification.OFF if mode == "Off" else Verification.PENDING
        self._last = self._repeated = _Result(CanaryOutcome(state, "no canary has ended"))
        """The last canary of all, and the last one to a D pod that gets requests."""

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
        return (
            f"The KV transfer{pods} is not verified ({shown.outcome.state}): {shown.outcome.reason}. {self._progress}."
        )

    async def forever(self) -> None:
        """Send canaries until cancelled."""
        if self._mode == "Off":
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as canaries:
            while True:
                for pair in self.due():
                    canaries.create_task(self.send(*pair))
                await self._pods.wait(self.due, self._clock() + _ROUND_S)
                self._judge()

    def due(self) -> list[tuple[Pod, Pod]]:
        """The P and D pods of the canaries that may be sent now. Those to D pods that have to pass one go first."""
        self._forget()
        pairs = [pair for pair in self._pairs() if pair[1] not in self._under_way]
        unproven = [pair for pair in pairs if self._is_unproven(pair[1])]
        new = [pair for pair in unproven if pair[1] not in self._results]
        again = [pair for pair in unproven if pair[1] in self._results and self._is_tried_again(pair[1])]
        if found := new[: self._places(tried=False)] + again[: self._places(tried=True)]:
            return found
        others = [pair for pair in pairs if not self._is_unproven(pair[1])]
        return others[:1] if others and not self._under_way and self._is_repeated(others[0][1]) else []

    def send(self, parameter: Pod, decode: Pod) -> Coroutine[None, None, None]:
        """A canary through a pair, unless the D pod turns out to serve already. From now on it is under way."""
        self._under_way[decode] = self._clock()
        return self._send(parameter, decode)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series."""
        shown = self._shown
        states = GaugeMetricFamily(METRIC_VERIFICATION, HELP[METRIC_VERIFICATION], labels=["state", *ENGINE_ROLES])
        for state in Verification:
            is_shown = state is shown.outcome.state
            pods = (shown.faulty_parameter, shown.faulty_decode) if is_shown else ("", "")
            states.add_metric([state, *pods], float(is_shown))
        yield states
        for name, value in (
            (METRIC_VERIFICATION_AGE_SECONDS, self._clock() - shown.ended_at),
            (METRIC_VERIFICATION_TOKENS, shown.outcome.tokens),
            (METRIC_VERIFICATION_DISTANCE, shown.outcome.distance),
            (METRIC_VERIFICATION_LIMIT, shown.outcome.limit),
        ):
            yield GaugeMetricFamily(name, HELP[name], value=value)

    @property
    def _shown(self) -> _Result:
        """The worst fault; without one the latest result, also of a pod that is gone if there is no other."""
        if faults := [result for result in self._results.values() if result.is_fault]:
            return min(faults, key=lambda one: (FAULTS.index(one.outcome.state), one.decode))
        if not self._open:
            found = "canaries to other D pods have not ended" if self._results else "no canary has ended"
            return _Result(CanaryOutcome(Verification.PENDING, found))
        return max(self._results.values(), key=lambda one: one.ended_at, default=self._last)

    @property
    def _progress(self) -> str:
        every = self._pods.linked_decode
        return f"{sum(pod.admitted for pod in every)} of {len(every)} D pods have passed a canary"

    def _forget(self) -> None:
        """Drop the results of D pods that are gone or not ready, or have started again: they have to be tried again."""
        ready = {pod for pod in self._pods if pod.observed.ready}
        self._results = {
            pod: result
            for pod, result in self._results.items()
            if pod in ready and (result.is_fault or not self._is_unproven(pod))
        }

    def _judge(self) -> None:
        """Let requests come if they may, and go to D pods that need not wait for P."""
        self._forget()
        every = self._pods.linked_decode
        admitted = sum(pod.admitted for pod in every)
        self._first_admitted_at = min(self._first_admitted_at, self._clock()) if admitted else math.inf
        if any(one.outcome.state is Verification.WRONG_ANSWER for one in self._results.values()):
            return
        has_waited = self._clock() - self._first_admitted_at >= _OTHERS_S
        enough = admitted == len(every) or (has_waited and admitted >= _LEAST_ADMITTED * len(every))
        self._open |= bool(admitted) and enough
        if self._open:
            self._trust()

    def _trust(self) -> None:
        """Let requests go to D pods that have answered all that they were asked, and whose canaries wait for P."""
        for pod, began in self._under_way.items():
            waits_for_parameter = self._clock() - began >= _PATIENCE_S and not pod.under_way
            if waits_for_parameter and self._is_unproven(pod) and not pod.admitted and not self._is_at_fault(pod):
                self._admit_on_trust(pod, "its canary waits for P")

    def _admit_on_trust(self, decode: Pod, why: str) -> None:
        self._pods.admit(decode, Admission.ON_TRUST)
        _LOG.warning("D pod %s gets requests: %s", decode.observed.name, why)

    def _is_at_fault(self, decode: Pod) -> bool:
        """Whether the last canary to a D pod found a fault of it."""
        result = self._results.get(decode)
        return result is not None and bool(result.faulty_decode)

    def _is_unproven(self, decode: Pod) -> bool:
        """Whether a D pod has to pass a canary."""
        return self._mode == "Required" and decode.admission is not Admission.PROVEN

    def _places(self, *, tried: bool) -> int:
        """How many more canaries may be sent to D pods that were tried, or to others."""
        taken = sum((pod in self._results or pod.admitted) is tried for pod in self._under_way)
        return max(0, _AT_ONCE - taken)

    def _is_tried_again(self, decode: Pod) -> bool:
        """Whether the next canary to a D pod that has not passed one may be sent."""
        last = self._results[decode]
        return self._clock() - last.ended_at >= min(_tried_again(last.faults), _LONGEST_PAUSE_S)

    def _is_repeated(self, decode: Pod) -> bool:
        """Whether the next canary may be sent, if it goes to this D pod, which gets requests."""
        result = self._results.get(decode)
        faults = 0 if result is None else result.faults
        passed = self._clock() - self._repeated.ended_at
        if any(pod.under_way for pod in self._pods):
            return passed >= (self._rare if result is None else self._patience(faults))
        return result is None or passed >= self._pause(faults) or self._is_doubted

    def _pause(self, faults: int) -> float:
        """Seconds until the next canary at rest after a number of faults, if no D pod that gets requests is untried."""
        if faults:  # it may have ended
            return min(_tried_again(faults), _REPEATED_S)
        return max(_REPEATED_S, min(self._rare, _SELDOM_S))

    @property
    def _is_doubted(self) -> bool:
        """Whether something failed since the last canary, and long enough ago."""
        settled = self._pods.doubted_at + _DOUBTED_S
        return self._repeated.ended_at < settled <= self._clock()

    def _patience(self, faults: int) -> float:
        """Seconds until the next canary does not wait for rest any longer, if each D pod has been tried."""
        return max(_REPEATED_S if faults else _SELDOM_S, self._rare)

    @property
    def _rare(self) -> float:
        """Seconds after which the last canary was a small part of the load."""
        # One that got no answer takes long, but is no load, and what failed may work again soon.
        last = self._repeated
        return 0.0 if last.outcome.state is Verification.FAILED else _LOAD * last.seconds

    def _rank(self, decode: Pod) -> _Rank:
        result = self._results.get(decode)
        if result is None:
            return _Rank.UNTRIED
        return _Rank.FAULT if result.is_fault else _Rank.GOOD

    def _pairs(self) -> list[tuple[Pod, Pod]]:
        """Each D pod that has a link to a P pod, the next one first, with such a P pod. P pods take turns."""
        parameter, decode = (sorted(self._pods.reachable(role), key=lambda pod: pod.turn) for role in ENGINE_ROLES)
        pairs: list[tuple[Pod, Pod]] = []
        for pod in sorted(decode, key=self._rank):
            if links := [one for one in parameter if linked(one, pod)]:
                pairs.append((links[len(pairs) % len(links)], pod))
        return pairs

    async def _send(self, parameter: Pod, decode: Pod) -> None:
        try:
            if self._is_unproven(decode) and decode not in self._results and await self._canary.serves(decode):
                self._pods.admit(decode, Admission.PROVEN)
                self._open = True
            else:
                await self._try(parameter, decode)
        finally:
            self._under_way.pop(decode, None)
        self._judge()

    async def _try(self, parameter: Pod, decode: Pod) -> None:
        """Send a canary through a pair, and another one if the first may be wrong by chance."""
        began = self._clock()
        before = self._results.get(decode)
        faults = 0 if before is None else before.faults
        outcome = await self._outcome(parameter, decode, faults)
        if outcome.state in _TRIED_AGAIN:
            if outcome.state is Verification.WRONG_ANSWER:
                self._suspect(decode)
            outcome = await self._outcome(parameter, decode, faults)
        names = parameter.observed.name, decode.observed.name
        ended = self._clock()
        result = _Result(outcome, *names, ended - began, ended)
        if result.is_fault:
            result = replace(result, faults=faults + 1)
        self._decide(decode, before, result)
        self._results[decode] = self._last = result
        if not self._is_unproven(decode):
            self._repeated = result
        if before is None or before.outcome.state is not outcome.state:
            level = logging.WARNING if result.is_fault else logging.INFO
            _LOG.log(level, "KV transfer from %s to %s: %s: %s", *names, outcome.state, outcome.reason)

    async def _outcome(self, parameter: Pod, decode: Pod, faults: int) -> CanaryOutcome:
        return await self._canary.send(parameter, decode, _LONGEST_S * 2 ** min(faults, _MOST_DOUBLINGS))

    def _suspect(self, decode: Pod) -> None:
        """Send no requests to a D pod on trust until its canary has ended."""
        self._under_way[decode] = math.inf
        if decode.admission is Admission.ON_TRUST:
            self._pods.admit(decode, Admission.HELD)

    def _decide(self, decode: Pod, before: _Result | None, result: _Result) -> None:
        """What follows from a canary, and the one before, for a D pod that had to pass one."""
        if not self._is_unproven(decode):
            return
        if not result.is_fault:
            self._pods.admit(decode, Admission.PROVEN)
        elif result.faulty_decode:
            self._pods.admit(decode, Admission.HELD)
        elif self._open and before is not None and before.outcome.by_parameter and not decode.admitted:
            self._admit_on_trust(decode, "P fails its canaries")


def _tried_again(faults: int) -> float:
    """Seconds until a D pod is tried again after a number of faults; infinite after none."""
    return _FIRST_PAUSE_S * 2 ** min(faults - 1, 16) if faults else math.inf
