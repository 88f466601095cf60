"""The pace of an idle D pod, by which decode load is measured: it has to outlive the operator that saw it.

A pod that was never seen idle seems to be slow by nature, so that its load comes out too low. An operator that starts
while pods are busy would take pods away. So the HPA of D carries the best that was ever seen of its revision.
"""

from collections.abc import Mapping
from typing import Final

from pdinference.planning.observed import AutoscalerState, Pace

_BETTER: Final = 0.95
"""What is not better than this is not worth a write."""


def pace_for(hpa: AutoscalerState | None, revision: str, seen: Mapping[str, float]) -> Pace | None:
    """What the HPA that follows a revision is to carry.

    Args:
        hpa: The live one.
        revision: What it is to follow.
        seen: The shortest time for a token, of each revision, that this operator saw.
    """
    known = noted(hpa, revision)
    now = seen.get(revision)
    if now is None or (known is not None and not is_better(now, known.token_seconds)):
        return known
    return Pace(revision, now)


def noted(hpa: AutoscalerState | None, revision: str) -> Pace | None:
    """What the HPA carries of a revision."""
    return hpa.pace if hpa is not None and hpa.pace is not None and hpa.pace.revision == revision else None


def is_better(now: float, before: float | None) -> bool:
    """Whether a time is so much shorter than the best before that it is worth a note."""
    return before is None or now < _BETTER * before
