"""The condition KVTransfer and `status.transfer`: whether KV cache gets from P to D, right and fast enough.

At rest nothing changes: the numbers of the last window with requests remain, with their time.

Tests: tests/planning/test_transfer_measurements.py, tests/planning/test_transfer_path.py
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pdinference.api.names import Role, Verification
from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.conditions import KV_TRANSFER
from pdinference.api.v1alpha1.status import TransferStatus
from pdinference.memory.link_speeds import GIGA
from pdinference.planning.condition_changes import ConditionResult, find
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.status.transfer_messages import (
    COMPUTED_BY_DECODE,
    FAILING,
    NO_REQUESTS,
    SATURATED,
    SLOW,
    TRANSFERRING,
    VERIFIED,
    WRONG_ANSWERS,
    condition,
)
from pdinference.planning.status.transfer_numbers import has_moved, transfer_numbers
from pdinference.planning.transfer_measurements import (
    FAULTS,
    CanaryFacts,
    Path,
    Rates,
    TransferFacts,
    rates,
)

_SEVERITY: Final = (
    NO_REQUESTS,
    TRANSFERRING,
    VERIFIED,
    SATURATED,
    SLOW,
    COMPUTED_BY_DECODE,
    FAILING,
    WRONG_ANSWERS,
)
"""The reasons. A later one takes precedence."""
_OF_CANARY: Final[Mapping[str, str]] = dict(zip(FAULTS, (WRONG_ANSWERS, COMPUTED_BY_DECODE, FAILING), strict=True))
_OF_REQUESTS: Final = frozenset({SATURATED, SLOW, COMPUTED_BY_DECODE, FAILING})
"""Faults that requests show."""
_PAUSE: Final = timedelta(seconds=WINDOW_S)
"""Time between two writes, except for a more severe reason, a new revision, or a canary that is good again."""


class _Limit(NamedTuple):
    """A limit with hysteresis: where a reason begins, and where it ends."""

    begins: float
    ends: float

    def of(self, reason: str, before: str) -> float:
        """The limit while `before` is the reason."""
        return self.ends if reason == before else self.begins


_FAILED: Final = _Limit(0.01, 0.005)
_BY_DECODE: Final = _Limit(0.2, 0.1)
_BUSY: Final = _Limit(0.8, 0.6)
_FAST: Final = 1.25
"""In parts of the path's least speed: from here on a slow path is not slow any more."""
_WHOLE_S: Final = 0.9 * WINDOW_S
"""Length of a window from which on a fault that is not in it has ended. Its readings are some seconds apart."""


def transfer(
    inputs: StatusInputs, previous: Status, now: datetime
) -> tuple[ConditionResult | None, TransferStatus | None]:
    """The condition and the numbers; as last written while no router pod reports, and before that the path alone."""
    path, facts = inputs.desired.transfer_path, _of_known_pods(inputs)
    if path is None or (facts is not None and _has_no_p(inputs, path, facts.revision)):
        return None, None
    last = find(previous.conditions, KV_TRANSFER)
    if facts is None:
        if last is None:
            return None, TransferStatus(revision=inputs.desired.revision, path=path.name, path_reason=path.reason)
        return ConditionResult(last.status, last.reason, last.message), previous.transfer
    if facts.revision != inputs.desired.revision:  # the spec describes another revision, whose path may be faster
        path = replace(path, gpus=False)
    known = previous.transfer if last is not None and _is_of(previous.transfer, facts) else None
    before = last.reason if known is not None and last is not None and last.reason in _SEVERITY else NO_REQUESTS
    if known is not None and _has_recovered(known, facts.canary.state) and before == _of_canary(known):
        before = VERIFIED
    found = rates(facts, path, _ways(inputs, path, facts.revision))
    reason = _judge(facts.canary, found, path, before)
    numbers = transfer_numbers(facts, found, path, known, now)
    if facts.revision == inputs.desired.revision:
        numbers = numbers.model_copy(update={"path": path.name, "path_reason": path.reason})
    lasts = before in _OF_REQUESTS and facts.seconds < _WHOLE_S  # the operator or the router has restarted
    rests = found is None
    if known is not None and _is_kept(reason, before, numbers, known, now, lasts=lasts, rests=rests):
        reason, numbers = before, known
    if facts.revision == inputs.desired.revision:
        numbers = numbers.model_copy(update={"repair": inputs.repaired})
    return condition(reason, numbers, path), numbers


def _of_known_pods(inputs: StatusInputs) -> TransferFacts | None:
    """The facts without names of pods that there are not: what router pods report is untrusted."""
    facts = inputs.observations.transfer
    if facts is None:
        return None
    names = {pod.name for pod in inputs.pods}

    def known(engine: str) -> str:
        return engine if engine.partition("/")[0] in names else ""

    found = facts.canary
    return replace(facts, canary=replace(found, decode=known(found.decode), parameter=known(found.parameter)))


def _has_no_p(inputs: StatusInputs, path: Path, revision: str) -> bool:
    """Whether D computes the prompts of a revision. Without P pods, P may run in the pods of D."""
    return revision in inputs.aggregated and not (path.host_local and revision == inputs.desired.revision)


def _is_of(known: TransferStatus | None, facts: TransferFacts) -> bool:
    return known is not None and known.revision == facts.revision


def _ways(inputs: StatusInputs, path: Path, revision: str) -> int:
    """How many transfers do not share a way: those of one rank share it, be it of P or of D."""
    decode = inputs.ready_leaders(Role.DECODE, revision)
    if path.host_local:
        return max(1, decode * min(path.parameter_instances, path.decode_instances))
    parameter = inputs.ready_leaders(Role.PARAMETER, revision)
    return max(1, min(decode * path.decode_data, parameter * path.parameter_data))


def _of_canary(known: TransferStatus) -> str:
    """The reason that follows from the last written canary alone."""
    return _OF_CANARY.get(known.verification.state, NO_REQUESTS)


def _has_recovered(known: TransferStatus, state: str) -> bool:
    """Whether a canary is good after one that was not."""
    return _of_canary(known) != NO_REQUESTS and state == Verification.VERIFIED


def _judge(canary: CanaryFacts, found: Rates | None, path: Path, before: str) -> str:
    """The reason of the condition, from the last canary and the requests of the window."""
    of_canary = _OF_CANARY.get(canary.state, NO_REQUESTS)
    of_requests = _at_rest(canary, before) if found is None else _of_requests(canary, found, path, before)
    return max(of_canary, of_requests, key=_SEVERITY.index)


def _at_rest(canary: CanaryFacts, before: str) -> str:
    """The reason while no request comes: what was found last, until a canary finds something else."""
    if canary.state is Verification.VERIFIED:
        # A canary is too small to measure a speed.
        lasts = before == SLOW or (before in {COMPUTED_BY_DECODE, FAILING} and not canary.is_recent)
        return before if lasts else VERIFIED
    if before == SATURATED:
        return TRANSFERRING
    if before in {VERIFIED, WRONG_ANSWERS} and canary.state is not Verification.PENDING:
        return NO_REQUESTS
    return before


def _of_requests(canary: CanaryFacts, found: Rates, path: Path, before: str) -> str:
    """The reason while requests come."""
    if (found.failed or 0.0) + (found.expired or 0.0) >= _FAILED.of(FAILING, before):
        return FAILING
    if found.by_decode >= _BY_DECODE.of(COMPUTED_BY_DECODE, before) * (found.from_parameter + found.by_decode) > 0:
        return COMPUTED_BY_DECODE
    if (found.busy or 0.0) > _BUSY.of(SATURATED, before):
        return SATURATED
    return SLOW if _is_slow(found, path, before) else _without_fault(canary, before)


def _is_slow(found: Rates, path: Path, before: str) -> bool:
    """Whether KV cache moves too slowly; as before where that does not follow from the transfers."""
    least = GIGA * path.least_speed
    if path.gpus and found.speed is not None and found.speed >= _FAST * least:
        return False
    return before == SLOW or (path.gpus and found.fastest is not None and found.fastest < least)


def _without_fault(canary: CanaryFacts, before: str) -> str:
    if canary.state is Verification.VERIFIED:
        return VERIFIED
    if canary.state is Verification.PENDING and before in {VERIFIED, WRONG_ANSWERS}:
        return before  # the router pod has restarted
    return TRANSFERRING


def _is_kept(
    reason: str, before: str, fresh: TransferStatus, known: TransferStatus, now: datetime, *, lasts: bool, rests: bool
) -> bool:
    """Whether the written status stays, so that a load that varies a little causes no write.

    Args:
        reason: The new reason.
        before: The reason before.
        fresh: The new numbers.
        known: The written numbers.
        now: The time.
        lasts: Whether the window is too short to show that the fault has ended.
        rests: Whether no request came in the window, so that nothing varies.
    """
    if _SEVERITY.index(reason) > _SEVERITY.index(before):
        return False
    if lasts and reason != before:
        return True
    if _has_recovered(known, fresh.verification.state) or (rests and reason != before):
        return False
    if known.from_parameter_percent is None and fresh.from_parameter_percent is not None:
        return False
    if known.observed_time is not None and timedelta() <= now - known.observed_time < _PAUSE:
        return True
    return reason == before and not has_moved(fresh, known)
