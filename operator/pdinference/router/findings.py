"""What canaries have found of the D pods and of pairs, and which ones are under way. Pure: times are arguments."""

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from pdinference.api.names import Verification
from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.planning.transfer_measurements import FAULTS, MOST_PAIRS
from pdinference.router.canary_outcome import CanaryOutcome
from pdinference.router.pod import Admission, Pod

_NONE_HAS_ENDED: Final = "no canary has ended"
_UNKNOWN: Final = CanaryOutcome(Verification.PENDING, "no canary showed whether KV cache gets through")

Pair = tuple[Pod, Pod]
"""The P and the D pod of a canary."""


@dataclass(frozen=True, slots=True)
class Result:
    """A canary that has ended, and the pods that it went through.

    Attributes:
        seconds: How long it took.
        ended_at: When it ended; minus infinity before any has.
        faults: Number of canaries in a row, up to this one, that found a fault of the D pod, or of the pair.
        faulty_since: When the first one of these ended; only if there are any.
        faulty_until: When the last one of these ended.
        restarts: How often the containers of P and D had been started again when it was sent.
    """

    outcome: CanaryOutcome
    parameter: str = ""
    decode: str = ""
    seconds: float = 0.0
    ended_at: float = -math.inf
    faults: int = 0
    faulty_since: float = math.inf
    faulty_until: float = math.inf
    restarts: tuple[int, int] = (0, 0)

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

    def following(self, before: "Result | None") -> "Result":
        """The same, as the next result of the D pod, or of the pair: faults in a row are counted."""
        if not self.is_fault:
            return self
        if before is None or not before.faults:
            return replace(self, faults=1, faulty_since=self.ended_at, faulty_until=self.ended_at)
        return replace(self, faults=before.faults + 1, faulty_since=before.faulty_since, faulty_until=self.ended_at)


def restarts_of(pair: Pair) -> tuple[int, int]:
    """How often the containers of a pair of pods have been started again."""
    parameter, decode = pair
    return parameter.observed.restarts, decode.observed.restarts


@dataclass(frozen=True, slots=True)
class Sent:
    """A canary that has not ended.

    Attributes:
        began_at: When it was sent.
        suspects: Whether its first answer was wrong, so that a second one decides.
    """

    began_at: float
    suspects: bool = False


@dataclass(slots=True)
class Findings:
    """What is known of the D pods.

    Attributes:
        mode: Whether requests wait for canaries.
        results: The last result of each D pod that has been ready since then.
        pairs: The last result of each pair of pods that have been ready since then; those that show nothing of the
            way from P to D count as canaries of an unknown outcome. At most `MOST_PAIRS`: the oldest result without a
            fault makes room.
        under_way: The canaries that have not ended, by D pod.
        last: The last result of all.
        last_pair: The last result of a pair.
        repeated: The last result of a D pod that need not pass a canary.
    """

    mode: VerificationMode
    results: dict[Pod, Result] = field(default_factory=dict)
    pairs: dict[Pair, Result] = field(default_factory=dict)
    under_way: dict[Pod, Sent] = field(default_factory=dict)
    last: Result = field(init=False)
    last_pair: Result = field(init=False)
    repeated: Result = field(init=False)

    def __post_init__(self) -> None:
        state = Verification.OFF if self.mode == "Off" else Verification.PENDING
        self.last = self.last_pair = self.repeated = Result(CanaryOutcome(state, _NONE_HAS_ENDED))

    def is_unproven(self, decode: Pod) -> bool:
        """Whether a D pod has to pass a canary."""
        return self.mode == "Required" and decode.admission is not Admission.PROVEN

    def faults(self, decode: Pod) -> int:
        """Number of the last canaries to a D pod, in a row, that found a fault."""
        result = self.results.get(decode)
        return 0 if result is None else result.faults

    @property
    def has_wrong_answer(self) -> bool:
        """Whether the last canary to any D pod had a wrong answer."""
        return any(one.outcome.state is Verification.WRONG_ANSWER for one in self.results.values())

    @property
    def pairs_known_since(self) -> float:
        """The result of a pair that ended after this time has not been dropped to make room."""
        if len(self.pairs) < MOST_PAIRS:
            return -math.inf
        return min((one.ended_at for one in self.pairs.values() if not one.is_fault), default=math.inf)

    def shown(self, *, is_open: bool) -> Result:
        """The worst fault; without one the latest result, also of a pod that is gone if there is no other.

        Args:
            is_open: Whether requests may come. Until then a good result says nothing of the other D pods.
        """
        found = (*self.results.values(), *self.pairs.values())
        if faults := [result for result in found if result.is_fault]:
            return min(faults, key=lambda one: (FAULTS.index(one.outcome.state), one.decode))
        if not is_open:
            why = "canaries to other D pods have not ended" if self.results else _NONE_HAS_ENDED
            return Result(CanaryOutcome(Verification.PENDING, why))
        return max(self.results.values(), key=lambda one: one.ended_at, default=self.last)

    def forget(self, ready: AbstractSet[Pod]) -> None:
        """Drop the results of pods that are gone or not ready, or have started again: they have to be tried again.

        Args:
            ready: The pods that are ready.
        """
        self.results = {
            pod: result
            for pod, result in self.results.items()
            if pod in ready and (result.is_fault or not self.is_unproven(pod))
        }
        self.pairs = {
            pair: result
            for pair, result in self.pairs.items()
            if ready >= {*pair} and result.restarts == restarts_of(pair)
        }

    def send(self, decode: Pod, now: float) -> None:
        """Note that a canary to a D pod is sent."""
        self.under_way[decode] = Sent(now)

    def suspect(self, decode: Pod) -> None:
        """Note that the first answer of a canary was wrong."""
        self.under_way[decode] = Sent(self.under_way[decode].began_at, suspects=True)

    def take(self, decode: Pod, result: Result) -> None:
        """Note a result, after the admission of its D pod has followed from it."""
        self.results[decode] = self.last = result
        if not self.is_unproven(decode):
            self.repeated = result

    def take_pair(self, parameter: Pod, decode: Pod, result: Result) -> Result:
        """Note a result as one of the pair, and return what is known of the pair now."""
        before = self.pairs.get((parameter, decode))
        if result.outcome.shows_the_way:
            found = result.following(before)
        elif before is not None and result.is_fault:
            found = replace(before, ended_at=result.ended_at)
        else:
            found = replace(result, outcome=_UNKNOWN, faults=0)
        self.pairs[parameter, decode] = found
        if len(self.pairs) > MOST_PAIRS:
            del self.pairs[min(self.pairs, key=lambda pair: (self.pairs[pair].is_fault, self.pairs[pair].ended_at))]
        self.last_pair = result
        return found

    def end(self, decode: Pod) -> None:
        """Note that the canary to a D pod is over, with or without a result."""
        self.under_way.pop(decode, None)
