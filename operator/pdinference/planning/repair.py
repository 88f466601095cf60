"""Which pod is restarted because its KV transfer is proven broken, or its engine is stuck (`transfer.repair`). Pure.

The proof are canaries of the routers by pairs of P and D. If all pairs of a pod are broken, the pod is to blame.
If pods with other good pairs have a broken one, the pod that started last is tried first, then the other one. An engine
that is stuck is none that canaries tell of: it does not answer them. Its pod comes first.

Tests: tests/planning/test_repair.py
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.status import RepairStatus
from pdinference.planning.observed import PodSummary
from pdinference.planning.transfer_measurements import MOST_PAIRS, PROVEN_FAULTS, PROVEN_S, PairFacts

MOST_RESTARTS: Final = 4
"""Restarts in a row. What they do not mend has another cause."""
_FIRST_PAUSE: Final = timedelta(minutes=2)
"""Time from a restart to the next one; it doubles with each one."""
_IN_A_ROW: Final = timedelta(hours=1)
"""A fault that comes later than this after a restart that helped is a new one."""
_UNSEEN: Final = timedelta(minutes=30)
"""Without canaries a restart has helped if no engine was found stuck for so long after it."""
_REFUSED_S: Final = 30.0
"""Seconds until an eviction that was refused is tried again."""
_ENOUGH: Final = 8
"""Pairs of a pod that tell whether it is to blame, if it has more."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What to do about the pairs of a resource.

    Attributes:
        status: The status if nothing is evicted.
        evict: The pod to evict; None for none.
        evicted: The status once it is evicted.
        again_after: Seconds until the next decision without an event; None for never.
    """

    status: RepairStatus | None = None
    evict: PodSummary | None = None
    evicted: RepairStatus | None = None
    again_after: float | None = None

    def after(self, refusal: str) -> RepairStatus | None:
        """The status after the execution.

        Args:
            refusal: Why the pod was not evicted; empty if it was.
        """
        if self.evict is None:
            return self.status
        if not refusal:
            return self.evicted
        return _with(self.status, withheld=f"pod {self.evict.name}: {refusal}")


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A pod that is to blame.

    Attributes:
        broken: Its broken pairs.
        whole: Whether it has no other ones, and all were tried.
        stuck: Whether its engine takes no step any more.
    """

    pod: PodSummary
    broken: tuple[PairFacts, ...]
    whole: bool
    stuck: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether enough canaries found its pairs broken, for long enough."""
        pairs = self.broken if self.whole else tuple(pair for pair in self.broken if _is_proven([pair]))
        return bool(pairs) and _is_proven(pairs)


def repair(
    *,
    pairs: Sequence[PairFacts],
    pods: Sequence[PodSummary],
    stuck: Sequence[PodSummary],
    canaries: bool,
    settled: bool,
    before: RepairStatus | None,
    now: datetime,
    rank_pairs: int = 1,
) -> Repair:
    """Decide whether to restart a pod.

    Args:
        pairs: What canaries found of pairs. Names of other pods are untrusted and ignored.
        pods: The leading P and D pods of the revision that serves, as the routers see them.
        stuck: Those of them whose engine is stuck.
        canaries: Whether the routers send canaries that show something.
        settled: Whether all of these pods are there, the others ready, and no other one is under way.
        before: The status as last written for this revision.
        now: The time.
        rank_pairs: Pairs of data-parallel ranks between a P and a D pod.
    """
    if before is not None and before.restart_time is not None and before.restart_time > now:
        before = before.model_copy(update={"restart_time": now})  # the clock was set back, or another client wrote it
    if not settled:
        return Repair(before)
    by_name = {pod.name: pod for pod in pods}
    known = [pair for pair in pairs if by_name.keys() >= {*_names(pair)}]
    if not stuck and not any(pair.faults for pair in known):
        return Repair(_mended(before, known, by_name)) if canaries else _unseen(before, now)
    restarted = () if before is None or _is_over(before, now) else tuple(before.pods)
    suspects = [_Suspect(pod, (), whole=True, stuck=True) for pod in stuck]
    suspects = suspects or [one for one in _suspects(known, by_name, rank_pairs) if one.is_proven]
    if not suspects:
        return Repair(_with(before, withheld=""))
    if len(restarted) >= MOST_RESTARTS:
        return Repair(_with(before, outcome="GaveUp", withheld=""))
    if before is not None and before.restart_time is not None and restarted:
        pause = before.restart_time + _FIRST_PAUSE * 2 ** (len(restarted) - 1) - now
        if pause > timedelta():
            return Repair(_with(before, withheld=""), again_after=pause.total_seconds())
    return _restart(_in_order(suspects, restarted, by_name), by_name, before, restarted, now)


def _restart(
    suspects: Sequence[_Suspect],
    pods: Mapping[str, PodSummary],
    before: RepairStatus | None,
    restarted: tuple[str, ...],
    now: datetime,
) -> Repair:
    """Restart the first suspect that may be restarted."""
    for one in suspects:
        if not _is_last(one, pods):
            status = RepairStatus(
                pods=[*restarted, one.pod.name], restart_time=now, proof=_proof(one), outcome="Pending"
            )
            return Repair(_with(before, withheld=""), one.pod, status, again_after=_REFUSED_S)
    why = f"pod {suspects[0].pod.name}: no other D pod answers"
    return Repair(_with(before, withheld=why))


def _suspects(pairs: Sequence[PairFacts], pods: Mapping[str, PodSummary], rank_pairs: int) -> Iterator[_Suspect]:
    """The pods to blame: those with broken pairs alone, and both pods of pairs that have no such pod.

    A broken pair is held against none of its pods while their other pairs are untried.
    """
    found, unclear = {}, set()
    for name, pod in pods.items():
        of_pod = [pair for pair in pairs if name in _names(pair)]
        if len(of_pod) < min(rank_pairs * _number_of_pairs(pod, pods), _ENOUGH):
            unclear.add(name)
        if broken := tuple(pair for pair in of_pod if pair.faults):
            found[name] = _Suspect(pod, broken, whole=name not in unclear and len(broken) == len(of_pod))
    settled = unclear | {name for name, one in found.items() if one.whole}
    for one in found.values():
        if broken := tuple(pair for pair in one.broken if one.whole or not settled & {*_names(pair)}):
            yield _Suspect(one.pod, broken, one.whole)


def _number_of_pairs(pod: PodSummary, pods: Mapping[str, PodSummary]) -> int:
    """How many pairs a pod has: with each pod of the other role, or between its engines if it has several."""
    if pod.engines:
        parameter = sum(engine.role is Role.PARAMETER for engine in pod.engines)
        return parameter * (len(pod.engines) - parameter)
    return sum(other.role is not pod.role for other in pods.values())


def _in_order(
    suspects: Collection[_Suspect], restarted: Sequence[str], pods: Mapping[str, PodSummary]
) -> list[_Suspect]:
    """The suspects: those with broken pairs alone, the role less often restarted, more broken pairs, started last."""
    # A restarted D pod has a new name, a P pod does not.
    of_parameter = sum(name in pods and pods[name].role is Role.PARAMETER for name in restarted)
    times = {Role.PARAMETER: of_parameter, Role.DECODE: len(restarted) - of_parameter}
    latest_first = sorted(suspects, key=lambda one: (one.pod.started, one.pod.name), reverse=True)
    return sorted(
        latest_first, key=lambda one: (not one.whole, times.get(one.pod.role or Role.DECODE, 0), -len(one.broken))
    )


def _is_last(one: _Suspect, pods: Mapping[str, PodSummary]) -> bool:
    """Whether its role would answer no request without it.

    A P pod with broken pairs alone does not anyway, nor does a pod whose only engine is stuck.
    """
    others = any(pod.role is one.pod.role for pod in pods.values() if pod.name != one.pod.name)
    if others or (one.stuck and not one.pod.engines):
        return False
    return one.pod.role is Role.DECODE or not one.whole


def _is_proven(pairs: Collection[PairFacts]) -> bool:
    """Whether enough canaries found a fault of these pairs, those of one of them for long enough."""
    return sum(pair.faults for pair in pairs) >= PROVEN_FAULTS and max(pair.seconds for pair in pairs) >= PROVEN_S


def _names(pair: PairFacts) -> tuple[str, str]:
    """The pods of a pair, without their engines."""
    return pair.parameter.partition("/")[0], pair.decode.partition("/")[0]


def _proof(one: _Suspect) -> str:
    """What proves that the pod is broken."""
    if one.stuck:
        return "its engine had taken no step for minutes although it had requests"
    faults, seconds = sum(pair.faults for pair in one.broken), max(pair.seconds for pair in one.broken)
    ways = sorted({_names(pair) for pair in one.broken})
    others = {name for way in ways for name in way} - {one.pod.name}
    way = "from {} to {}".format(*ways[0]) if others else "between its engines"
    if len(others) > 1:
        way = f"between it and {len(others)} pods"
    return f"{faults} canaries in {seconds:.0f} s found that KV cache does not get through {way}"


def _is_over(before: RepairStatus, now: datetime) -> bool:
    """Whether the last restart helped, and for so long that a fault is a new one."""
    return before.outcome == "Repaired" and (before.restart_time is None or now - before.restart_time >= _IN_A_ROW)


def _mended(
    before: RepairStatus | None, pairs: Collection[PairFacts], pods: Mapping[str, PodSummary]
) -> RepairStatus | None:
    """The status without any broken pair: the fault is over once a canary has got through each pod."""
    tried = {name for pair in pairs for name in _names(pair)}
    if before is None or not pods or not (tried >= pods.keys() or len(pairs) >= MOST_PAIRS):
        return before
    return _with(before, outcome="Repaired" if before.pods else "", withheld="")


def _unseen(before: RepairStatus | None, now: datetime) -> Repair:
    """The decision where no canary says what came of a restart, and no engine is stuck."""
    if before is None or before.restart_time is None or before.outcome == "Repaired":
        return Repair(before)
    left = before.restart_time + _UNSEEN - now
    if left > timedelta():
        return Repair(_with(before, withheld=""), again_after=left.total_seconds())
    return Repair(_with(before, outcome="Repaired", withheld=""))


def _with(before: RepairStatus | None, **changes: str) -> RepairStatus | None:
    """The status with these values; None if it says nothing then."""
    found = (before or RepairStatus()).model_copy(update=changes)
    return None if found == RepairStatus() else found
