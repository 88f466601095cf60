"""Pods that answer, but not what their HPA goes by: as silent as those that do not answer."""

from collections.abc import Iterable
from typing import Final

from pdinference.autoscaling.signals import BlindError, PodLoad, measure
from pdinference.autoscaling.window import Window
from pdinference.planning.scaling.signals import Signal

_YOUNG_S: Final = 15.0
"""For so long after its first answer a pod need not tell rates."""


def lacks(window: Window, signals: Iterable[Signal], now: float) -> bool:
    """Whether one of the signals cannot be worked out of what the pod tells."""
    if window.latest(now) is None or window.age(now) < _YOUNG_S:
        return False
    pod = PodLoad(window, expected=True, counted=True)
    return any(_is_blind(signal, pod, now) for signal in signals)


def _is_blind(signal: Signal, pod: PodLoad, now: float) -> bool:
    try:
        measure(signal, [pod], target=None, now=now)
    except BlindError:
        return True
    return False
