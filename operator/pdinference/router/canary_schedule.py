"""Which canaries are due, and how long D has for an answer. Pure: what is known, and the time, are arguments.

Canaries to D pods that have to pass one go first, also under load. The others take turns, one at a time, at rest.
Pairs of P and D are tried under load, too, while something speaks against them: so a pair that is broken is found
within a minute or two, and it is known which pod all broken pairs have in common (planning/repair.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Final

from pdinference.api.names import Verification
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.transfer_measurements import PROVEN_FAULTS
from pdinference.router.findings import Findings, Pair, Result
from pdinference.router.links import linked
from pdinference.router.pod import Pod

LONGEST_S: Final = 60.0
"""Time for an answer of D to the first canary. The first prompt of a vLLM may wait for compilations."""
_MOST_DOUBLINGS: Final = 3
"""So often that time is doubled, once after each fault: D may be overloaded."""
_FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Times between canaries to a D pod that is not admitted."""
REPEATED_S: Final = 600.0
"""Time between two canaries to admitted D pods."""
DOUBTED_S: Final = WINDOW_S + 60.0
"""Time after a failure until a canary at rest shows whether it lasts. By then the operator's window has no request of
before, so that the canary decides about the status, with time for the operator to read routers."""
_LOAD: Final = 1000
"""Repeated canaries take at most one part in this number of the time."""
_PACE: Final = 20
"""Canaries to pairs against which nothing is known but a doubt take one part in this number of the time."""
SELDOM_S: Final = 3600.0
"""Longest time between two of them at rest, and the time that one waits for rest."""
AT_ONCE: Final = 4
"""Canaries at a time to D pods that had none, and as many to D pods that had one. The first prompt of a vLLM may take a
minute, so one after the other takes long, and pods that never answer must not delay those that join."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The pods at a moment.

    Attributes:
        parameter: P pods that can get a canary.
        decode: D pods that can.
        busy: Whether any pod has a request.
        doubted_at: When a pod or a link last failed, or a pod became ready or unready.
    """

    parameter: Sequence[Pod]
    decode: Sequence[Pod]
    busy: bool
    doubted_at: float


class _Rank(IntEnum):
    """What is known of a D pod; the lower one gets the next canary."""

    UNTRIED = 0
    FAULT = 1
    GOOD = 2


def due(findings: Findings, candidates: Candidates, now: float) -> list[Pair]:
    """The P and D pods of the canaries that may be sent now. Those to D pods that have to pass one go first."""
    pairs = [pair for pair in _pairs(findings, candidates) if pair[1] not in findings.under_way]
    unproven = [pair for pair in pairs if findings.is_unproven(pair[1])]
    new = [pair for pair in unproven if pair[1] not in findings.results]
    again = [pair for pair in unproven if pair[1] in findings.results and _is_tried_again(findings, pair[1], now)]
    if found := new[: _places(findings, tried=False)] + again[: _places(findings, tried=True)]:
        return found
    others = [pair for pair in pairs if not findings.is_unproven(pair[1])]
    if findings.under_way:
        return []
    if others and _is_repeated(findings, candidates, others[0][1], now):
        return others[:1]
    return _doubted(findings, candidates, now)


def _pairs(findings: Findings, candidates: Candidates) -> list[Pair]:
    """Each D pod that has a link to a P pod, the next one first, with such a P pod. P pods take turns."""
    parameter = sorted(candidates.parameter, key=lambda pod: pod.turn)
    pairs: list[Pair] = []
    for pod in sorted(candidates.decode, key=lambda pod: (_rank(findings, pod), pod.turn)):
        if links := [one for one in parameter if linked(one, pod)]:
            pairs.append((links[len(pairs) % len(links)], pod))
    return pairs


def _rank(findings: Findings, decode: Pod) -> _Rank:
    result = findings.results.get(decode)
    if result is None:
        return _Rank.UNTRIED
    return _Rank.FAULT if result.is_fault else _Rank.GOOD


def _places(findings: Findings, *, tried: bool) -> int:
    """How many more canaries may be sent to D pods that were tried, or to others."""
    taken = sum((pod in findings.results or pod.admitted) is tried for pod in findings.under_way)
    return max(0, AT_ONCE - taken)


def _doubted(findings: Findings, candidates: Candidates, now: float) -> list[Pair]:
    """The pair to which a canary is due because it has a fault, or because something happened to one of its pods."""
    decode = [pod for pod in candidates.decode if not findings.is_unproven(pod)]
    of_p, of_d = set(candidates.parameter), set(decode)
    known = {pair: last for pair, last in findings.pairs.items() if pair[0] in of_p and pair[1] in of_d}
    faulty = [pair for pair, last in known.items() if last.is_fault]
    if again := [pair for pair in faulty if _is_faulty_pair_due(findings.pairs[pair], now)]:
        return again[:1]
    last = findings.last_pair
    # While a fault is new, the other pairs of its pods show which one is to blame.
    is_new = any(findings.pairs[pair].faults < PROVEN_FAULTS for pair in faulty)
    if now - last.ended_at < (0.0 if is_new else min(_PACE * last.seconds, LONGEST_PAUSE_S)):
        return []
    # Ranks have many pairs, so that they are looked at one by one, and only if there may be a suspect among them.
    known_since = findings.pairs_known_since
    newest = max((pod.doubted_at for pod in (*candidates.parameter, *decode)), default=-math.inf)
    if newest <= min((known_since, *(one.ended_at for one in known.values() if not one.is_fault))):
        return []
    every = ((one, other) for one in candidates.parameter for other in decode if linked(one, other))
    return list(islice((pair for pair in every if _is_suspect(findings.pairs.get(pair), pair, known_since)), 1))


def _is_faulty_pair_due(last: Result, now: float) -> bool:
    return now - last.ended_at >= min(after_faults(last.faults), LONGEST_PAUSE_S)


def _is_suspect(last: Result | None, pair: Pair, known_since: float) -> bool:
    """Whether something happened to a pod of a pair without a fault after its last canary.

    Args:
        last: The result of that canary, if it is known.
        pair: The pods.
        known_since: When a canary whose result is not known can have ended at the latest.
    """
    doubted_at = max(pod.doubted_at for pod in pair)
    if last is None:
        return doubted_at > known_since
    return not last.is_fault and last.ended_at < doubted_at


def _is_tried_again(findings: Findings, decode: Pod, now: float) -> bool:
    """Whether the next canary to a D pod that has not passed one may be sent."""
    last = findings.results[decode]
    return now - last.ended_at >= min(after_faults(last.faults), LONGEST_PAUSE_S)


def _is_repeated(findings: Findings, candidates: Candidates, decode: Pod, now: float) -> bool:
    """Whether the next canary may be sent, if it goes to this D pod, which gets requests."""
    last = findings.repeated
    untried, faults = decode not in findings.results, findings.faults(decode)
    # One that got no answer takes long, but is no load, and what failed may work again soon.
    rare = 0.0 if last.outcome.state is Verification.FAILED else _LOAD * last.seconds
    passed = now - last.ended_at
    if candidates.busy:
        return passed >= (rare if untried else _under_load(rare, faults))
    is_doubted = last.ended_at < candidates.doubted_at + DOUBTED_S <= now
    return untried or passed >= _at_rest(rare, faults) or is_doubted


def _under_load(rare: float, faults: int) -> float:
    """Seconds until the next canary does not wait for rest any longer, if each D pod has been tried.

    Args:
        rare: Seconds after which the last canary was a small part of the load.
        faults: Number of canaries to the D pod, in a row, that found a fault.
    """
    return max(REPEATED_S if faults else SELDOM_S, rare)


def _at_rest(rare: float, faults: int) -> float:
    """Seconds until the next canary at rest, if no D pod that gets requests is untried."""
    if faults:  # it may have ended
        return min(after_faults(faults), REPEATED_S)
    return max(REPEATED_S, min(rare, SELDOM_S))


def after_faults(faults: int) -> float:
    """Seconds until a D pod is tried again after a number of faults, at least one."""
    return _FIRST_PAUSE_S * 2.0 ** min(faults - 1, 16)


def time_for_decode(faults: int) -> float:
    """Seconds that D has for each answer, after a number of faults in a row."""
    return LONGEST_S * 2.0 ** min(faults, _MOST_DOUBLINGS)
