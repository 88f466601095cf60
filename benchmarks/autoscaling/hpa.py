"""The algorithm of the HorizontalPodAutoscaler for external metrics with AverageValue, as Kubernetes documents it.

Pure: the caller brings time, replicas and metrics. One object is one HPA with its history.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SYNC_SECONDS = 15
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Target:
    """One external metric: how much of it each pod should have."""

    metric: str
    average_value: float


@dataclass(slots=True)
class Hpa:
    """One HPA with its memory of recommendations and of what it did.

    Attributes:
        minimum: `minReplicas`.
        maximum: `maxReplicas`.
        targets: Its metrics; the one that asks for most decides.
        behavior: `spec.behavior`, complete, in the Kubernetes API's form.
    """

    minimum: int
    maximum: int
    targets: Sequence[Target]
    behavior: Mapping[str, Any]
    _recommendations: list[tuple[float, int]] = field(default_factory=list)
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def sync(self, now: float, current: int, metrics: Mapping[str, float | None], *, live: int | None = None) -> int:
        """One round of the controller.

        Returns:
            `spec.replicas` of the scale target from now on.

        Args:
            now: Seconds.
            current: `spec.replicas` of the scale target.
            metrics: The value of each metric; None while it is unknown.
            live: `status.replicas` of the scale target, where that is another number: loads are compared with the
                pods that exist, and `behavior` applies to `spec.replicas` (Kubernetes 1.34, replica_calculator.go).
        """
        wanted = self._wanted(now, current, current if live is None else live, metrics)
        if wanted != current:
            self._changes.append((now, wanted - current))
        return wanted

    def _wanted(self, now: float, current: int, live: int, metrics: Mapping[str, float | None]) -> int:
        if current == 0:
            return 0  # off
        if not self._recommendations:
            self._recommendations.append((now, current))  # as the controller does when it first sees an HPA
        if not self.minimum <= current <= self.maximum:
            return min(max(current, self.minimum), self.maximum)
        proposal = self._propose(current, live, metrics)
        if proposal is None:
            return current
        return self._pace(now, current, self._stabilize(now, current, proposal))

    def _propose(self, current: int, live: int, metrics: Mapping[str, float | None]) -> int | None:
        """What the metrics ask for; None when too little is known to act."""
        proposals = [
            replicas_for(value, target.average_value, live)
            for target in self.targets
            if (value := metrics.get(target.metric)) is not None
        ]
        if not proposals:
            return None
        blind = len(proposals) < len(self.targets)
        return None if blind and max(proposals) < current else max(proposals)

    def _stabilize(self, now: float, current: int, proposal: int) -> int:
        """Go no further up than the least, and no further down than the most, that was asked for in the window."""
        self._recommendations.append((now, proposal))
        up, down = self._window("scaleUp"), self._window("scaleDown")
        self._recommendations = [(at, n) for at, n in self._recommendations if at > now - max(up, down, 1)]
        ceiling = min([proposal, *(n for at, n in self._recommendations if at > now - up)])
        floor = max([proposal, *(n for at, n in self._recommendations if at > now - down)])
        return min(max(current, ceiling), floor)

    def _window(self, direction: str) -> float:
        return float(self.behavior[direction]["stabilizationWindowSeconds"])

    def _pace(self, now: float, current: int, wanted: int) -> int:
        """Keep to the policies, and to minimum and maximum."""
        if wanted > current:
            limit = max(current, self._limit(now, current, "scaleUp"))
            return min(wanted, limit, self.maximum)
        if wanted < current:
            limit = min(current, self._limit(now, current, "scaleDown"))
            return max(wanted, limit, self.minimum)
        return current

    def _limit(self, now: float, current: int, direction: str) -> int:
        """How far the policies allow to go; of several the one that allows most, unless selectPolicy says Min."""
        rules = self.behavior[direction]
        select = rules.get("selectPolicy", "Max")
        if select == "Disabled":
            return current
        up = direction == "scaleUp"
        limits = []
        for policy in rules["policies"]:
            # What was there when the policy's period began.
            start = current - sum(by for at, by in self._changes if at > now - policy["periodSeconds"])
            limits.append(_allowed(policy["type"], policy["value"], start, up=up))
        return max(limits) if (select == "Max") == up else min(limits)


def replicas_for(total: float, average_value: float, current: int, tolerance: float = TOLERANCE) -> int:
    """Replicas that bring the average to its target; those there are, when it is near enough."""
    if abs(1 - total / (average_value * current)) <= tolerance:
        return current
    return math.ceil(total / average_value)


def _allowed(kind: str, value: int, start: int, *, up: bool) -> int:
    if kind == "Pods":
        return start + value if up else start - value
    return math.ceil(start * (1 + value / 100)) if up else int(start * (1 - value / 100))
