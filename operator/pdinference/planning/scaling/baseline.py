"""The baseline inter-token latency: that of an idle D pod. Decode load is measured against it.

It must survive a restart of the operator. Without it, the load of pods that were never observed idle is
underestimated, so an operator that starts while pods are busy would scale down. The status of D's scale target
therefore stores the lowest latency that was observed for its revision.
"""

from collections.abc import Mapping
from typing import Final

from pdinference.planning.scale_target import ScalerState

_BETTER: Final = 0.95
"""A smaller improvement is not worth a write."""
_MICROSECONDS: Final = 1_000_000


def best_baseline(scaler: ScalerState | None, revision: str, seen: Mapping[str, float]) -> int | None:
    """The baseline of a revision for the status of its scale target, in microseconds; None when unknown.

    Args:
        scaler: The scale target of D.
        revision: The serving revision.
        seen: Lowest seconds per token of each revision, as this process measured them.
    """
    known, now = known_baseline(scaler, revision), seen.get(revision)
    better = now if now is not None and is_better(now, known) else known
    return None if better is None else max(1, round(better * _MICROSECONDS))


def known_baseline(scaler: ScalerState | None, revision: str) -> float | None:
    """Seconds per token in the status of the scale target for a revision; None without one."""
    if scaler is None or scaler.revision != revision or not scaler.baseline_microseconds:
        return None
    return scaler.baseline_microseconds / _MICROSECONDS


def is_better(now: float, before: float | None) -> bool:
    """Whether a latency is sufficiently lower to be worth a write."""
    return before is None or now < _BETTER * before
