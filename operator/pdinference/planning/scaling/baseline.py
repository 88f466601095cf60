"""The baseline inter-token latency: that of an idle D pod, by which decode load is measured.

It has to outlive the operator that measured it. A pod that was never seen idle seems to be slow by nature, so that its
load comes out too low, and an operator that starts while pods are busy would take pods away. So the scale target of D
carries the best that was ever seen of its revision.
"""

from collections.abc import Mapping
from typing import Final

from pdinference.planning.scale_target import ScalerState

_BETTER: Final = 0.95
"""What is not better than this is not worth a write."""
_MICROSECONDS: Final = 1_000_000


def best_baseline(scaler: ScalerState | None, revision: str, seen: Mapping[str, float]) -> int | None:
    """The baseline of a revision that its scale target is to carry, in microseconds; None when it is not known.

    Args:
        scaler: The scale target of D.
        revision: The serving revision.
        seen: Shortest seconds per token of each revision, as this operator measured them.
    """
    known, now = known_baseline(scaler, revision), seen.get(revision)
    better = now if now is not None and is_better(now, known) else known
    return None if better is None else max(1, round(better * _MICROSECONDS))


def known_baseline(scaler: ScalerState | None, revision: str) -> float | None:
    """Seconds per token that the scale target carries for a revision; None when it carries none."""
    if scaler is None or scaler.revision != revision or not scaler.baseline_microseconds:
        return None
    return scaler.baseline_microseconds / _MICROSECONDS


def is_better(now: float, before: float | None) -> bool:
    """Whether a latency is so much shorter that it is worth a write."""
    return before is None or now < _BETTER * before
