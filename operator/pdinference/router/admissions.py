"""Which D pods may get requests, and whether any may come: what follows from canaries. Pure: the time is an argument.

With `Required`, a D pod is admitted when its canary has found no fault, or when it has served already. Requests go to
admitted D pods (`Pods.available`). They may come when all D pods are admitted, or half of them some time after the
first one; but not while a canary of a D pod got a wrong answer.

A D pod that joins a revision that serves is admitted on trust if its canary waits for P for long, or if P fails two
canaries in a row. If a canary finds a fault of the pod, it is not admitted any longer.

A revision that has served is not taken from service, and neither is a D pod that has passed: a canary that finds a
fault later changes only the state that is exported.

What decides is the last result of each ready D pod, not an order of steps.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from pdinference.router.canary_schedule import LONGEST_S
from pdinference.router.findings import Findings, Result
from pdinference.router.pod import Admission, Pod

PATIENCE_S: Final = 15.0
"""Time after which a D pod does not wait any longer for a canary that waits for P. Without load a canary takes 0.3 to
3.5 s (ADR 0021). Twice the time for D's metrics (5 s) is shorter, so D has been asked for more by then."""
OTHERS_S: Final = 2 * LONGEST_S
"""Time that a new revision waits for other D pods after the first one is admitted: one that does not answer has failed
a canary by then, and had time for another one."""
_LEAST_ADMITTED: Final = 0.5
"""Share of the D pods that a revision needs after that time. So no pod gets more than twice the load that it is for."""


@dataclass(frozen=True, slots=True)
class Change:
    """A D pod gets another admission.

    Attributes:
        why: For the log, if the outcome of the canary does not say it; else empty.
    """

    decode: Pod
    admission: Admission
    why: str = ""


@dataclass(frozen=True, slots=True)
class RevisionService:
    """Whether requests may come to the revision.

    Attributes:
        is_open: Whether they may. A revision that is open stays so.
        first_admitted_at: Since when a D pod has been admitted; None while none is.
    """

    is_open: bool
    first_admitted_at: float | None = None

    def at(self, now: float, findings: Findings, decode: Collection[Pod]) -> "RevisionService":
        """The same at a later time.

        Args:
            now: The time.
            findings: What is known of the D pods.
            decode: The ready D pods that have a link to a ready P pod.
        """
        admitted = sum(pod.admitted for pod in decode)
        if not admitted:
            return RevisionService(self.is_open)
        since = now if self.first_admitted_at is None else self.first_admitted_at
        enough = admitted == len(decode) or (now - since >= OTHERS_S and admitted >= _LEAST_ADMITTED * len(decode))
        return RevisionService(self.is_open or (enough and not findings.has_wrong_answer), since)

    def opened(self) -> "RevisionService":
        """The same, open."""
        return replace(self, is_open=True)


def suspected(decode: Pod) -> Change | None:
    """What follows from a first wrong answer: no requests on trust until the second one."""
    return Change(decode, Admission.HELD) if decode.admission is Admission.ON_TRUST else None


def concluded(
    findings: Findings, decode: Pod, before: Result | None, result: Result, *, is_open: bool
) -> Change | None:
    """What follows from a canary to a D pod, if it had to pass one.

    Args:
        findings: What is known of the D pods.
        decode: The D pod.
        before: The result before this one.
        result: This one.
        is_open: Whether requests may come to the revision.
    """
    if not findings.is_unproven(decode):
        return None
    if not result.is_fault:
        return Change(decode, Admission.PROVEN)
    if result.faulty_decode:
        return Change(decode, Admission.HELD)
    if is_open and before is not None and before.outcome.by_parameter and not decode.admitted:
        return Change(decode, Admission.ON_TRUST, "P fails its canaries")
    return None


def trusted(findings: Findings, now: float, *, is_open: bool) -> list[Change]:
    """The D pods that have answered all that they were asked, and whose canaries have waited for P for too long."""
    if not is_open or findings.has_wrong_answer:
        return []
    return [
        Change(pod, Admission.ON_TRUST, "its canary waits for P")
        for pod, sent in findings.under_way.items()
        if now - sent.began_at >= PATIENCE_S and not sent.suspects and not pod.under_way and _is_clear(findings, pod)
    ]


def _is_clear(findings: Findings, decode: Pod) -> bool:
    """Whether a D pod is not admitted yet, and nothing is known against it."""
    result = findings.results.get(decode)
    return findings.is_unproven(decode) and not decode.admitted and (result is None or not result.faulty_decode)


def refusal(findings: Findings, decode: Collection[Pod]) -> str:
    """Why requests must not come to a revision that is not open.

    Args:
        findings: What is known of the D pods.
        decode: The ready D pods that have a link to a ready P pod.
    """
    shown = findings.shown(is_open=False)
    pods = f" from {shown.parameter} to {shown.decode}" if shown.decode else ""
    progress = f"{sum(pod.admitted for pod in decode)} of {len(decode)} D pods have passed a canary"
    return f"The KV transfer{pods} is not verified ({shown.outcome.state}): {shown.outcome.reason}. {progress}."
