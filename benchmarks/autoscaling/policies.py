"""The scalers that are compared: ours, and what others publish. Each decides for one role."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.hpa import SYNC_SECONDS, Hpa, Target
from benchmarks.autoscaling.scaling import Scaler, preset_hpa
from benchmarks.autoscaling.signals import Metrics
from pdinference.api.names import Role
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.scale_spec import RoleScale
from pdinference.planning.scaling.signals import Signal

RANGE = RoleScale(const.MIN_PODS, const.MIN_PODS, const.MAX_PODS)
IN_FLIGHT_SECONDS = "in-flight prompt tokens / measured rate"
"""What llm-d's templates scale prefill by."""
_LLM_D_SIGNALS = {Role.PARAMETER: (IN_FLIGHT_SECONDS, 1.5), Role.DECODE: (Signal.KV_USAGE, 0.8)}


@dataclass(frozen=True, slots=True)
class Policy:
    """A way of scaling.

    Attributes:
        name: What the report calls it.
        scaler: Makes the scaler of a role; None leaves the role as it is.
        period: Seconds between two decisions.
        ahead: Whether the signals look ahead.
    """

    name: str
    scaler: Callable[[Role], Scaler | None]
    period: float = SYNC_SECONDS
    ahead: bool = False


def ours(role: Role) -> Scaler:
    """The operator's preset."""
    return preset_hpa(role, RANGE)


def llm_d(role: Role) -> Scaler:
    """Decode by the sum of KV usage, prefill by in-flight tokens over rate; one pod up in 180 s, one down in 300 s."""
    behavior: dict[str, Any] = {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 180}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
    }
    return Hpa(const.MIN_PODS, const.MAX_PODS, (Target(*_LLM_D_SIGNALS[role]),), behavior)


@dataclass(slots=True)
class Kpa:
    """Knative's pod autoscaler: a stable window, and a panic window in which it only goes up.

    Attributes:
        metric: The metric.
        target: How much of it a pod should have.
    """

    metric: str
    target: float
    stable: float = 180
    panic: float = 60
    threshold: float = 2.0
    _seen: deque[tuple[float, float]] = field(default_factory=deque)
    _panic_since: float | None = None
    _most: int = 0

    def sync(self, now: float, current: int, metrics: Metrics, *, live: int | None = None) -> int:
        """One round."""
        current = current if live is None else live
        value = metrics.get(self.metric)
        if value is None:
            return current
        self._seen.append((now, value))
        while self._seen[0][0] <= now - self.stable:
            self._seen.popleft()
        wanted, urgent = self._wanted(now, self.stable), self._wanted(now, self.panic)
        if urgent >= self.threshold * current:
            self._panic_since = now
        elif self._panic_since is not None and now - self._panic_since >= self.stable:
            self._panic_since, self._most = None, 0
        if self._panic_since is not None:
            wanted = self._most = max(self._most, wanted, urgent, current)
        return min(max(wanted, const.MIN_PODS), const.MAX_PODS)

    def _wanted(self, now: float, window: float) -> int:
        values = [value for at, value in self._seen if at > now - window]
        return math.ceil(sum(values) / len(values) / self.target)


def kpa(role: Role) -> Scaler:
    """With the same metrics as llm-d's templates."""
    return Kpa(*_LLM_D_SIGNALS[role])


def kpa_on_our_signals(role: Role) -> Scaler:
    """What the pace alone does: the same loads and targets as the presets."""
    signal, milli = next(iter(PRESETS[role].targets.items()))
    return Kpa(signal, milli / 1000)


def static(_role: Role) -> None:
    """As many pods as the peak needs, all the time."""


OURS = Policy("presets", ours, ahead=True)
NOT_AHEAD = Policy("presets, lookAhead: false", ours)
STATIC = Policy("static peak", static)
PEERS = (
    Policy("llm-d-like", llm_d),
    Policy("KPA-like", kpa, period=10),
    Policy("KPA-like, our signals", kpa_on_our_signals, period=10),
)
ALL = (OURS, NOT_AHEAD, *PEERS, STATIC)
