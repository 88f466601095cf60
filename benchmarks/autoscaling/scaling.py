"""Pods that come and go: HPAs recommend counts, and the operator's own function allocates them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from benchmarks.autoscaling.hpa import SYNC_SECONDS, Hpa, Target
from benchmarks.autoscaling.signals import SCRAPE_SECONDS, Metrics, Signals
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import PodSummary, WorkloadState
from pdinference.planning.scaling.allocation import allocate
from pdinference.planning.scaling.fleet import ScaledFleet
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.scale_spec import RoleScale, ScaleSpec
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet
from pdinference_advise.simulation.pods import SimulatedPod

_REVISION: Final = "r"
_RECONCILE_SECONDS: Final = 1.0
"""With a GPU budget, pods that end free GPUs at any moment."""


class Scaler(Protocol):
    """Recommends how many pods a role has."""

    def sync(self, now: float, current: int, metrics: Metrics, *, live: int | None = None) -> int:
        """The pods to ask for from now on, of `current` that are asked for and `live` that exist."""


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """How a fleet is scaled.

    Attributes:
        spec: Ranges, ratio and GPU budget.
        scalers: The scaler of each autoscaled role.
        startup: Gives the seconds from a pod's creation until it is ready.
        period: Seconds between two recommendations.
        ahead: Seconds that a pod takes to start, if the signals look ahead by them (`autoscaling.lookAhead`).
    """

    spec: ScaleSpec
    scalers: Mapping[Role, Scaler]
    startup: Callable[[], float]
    period: float = SYNC_SECONDS
    ahead: float | None = None


def preset_hpa(role: Role, scale: RoleScale) -> Hpa:
    """The HPA of a role whose spec sets only the range of replicas."""
    preset = PRESETS[role]
    targets = tuple(Target(signal, milli / 1000) for signal, milli in preset.targets.items())
    return Hpa(scale.minimum, scale.maximum, targets, preset.behavior)


def every(clock: Clock, seconds: float, action: Callable[[], None], *, after: float = 0.0) -> None:
    """Call something at regular intervals for as long as the clock runs."""

    def again() -> None:
        action()
        clock.at(clock.now + seconds, again)

    clock.at(clock.now + after, again)


class Autoscaler:
    """Scales the pods of a fleet, as HPAs and the operator do.

    Args:
        clock: Simulated time.
        fleet: The pods.
        how: Scalers and limits.
        metrics: Gives the metrics of a role; without it, those are the operator's signals.
        scaled: Called with a role and the change of its count.

    Attributes:
        recommended: `spec.replicas` of the scale target of each role.
        signals: The operator's signals.
    """

    def __init__(
        self,
        clock: Clock,
        fleet: SimulatedFleet,
        how: Autoscaling,
        *,
        metrics: Callable[[Role, Metrics], Metrics] = lambda _role, signals: signals,
        scaled: Callable[[Role, int], None] = lambda _role, _by: None,
    ) -> None:
        self._clock, self._fleet, self._how = clock, fleet, how
        self._metrics, self._scaled = metrics, scaled
        self.signals = Signals(clock, fleet, how.ahead)
        self.recommended = {role: len(self.pods(role)) for role in ENGINE_ROLES}
        every(clock, SCRAPE_SECONDS, self.signals.read)
        for role, scaler in how.scalers.items():
            every(clock, how.period, partial(self._recommend, role, scaler), after=how.period)
        if how.spec.budget is not None:
            every(clock, _RECONCILE_SECONDS, self.reconcile)

    def pods(self, role: Role) -> list[SimulatedPod]:
        """The pods of a role that stay, ready or not: `status.replicas` of its scale target."""
        return [pod for pod in self._fleet.every(role) if not pod.draining]

    def reconcile(self) -> None:
        """Give each role the pods that it may have now."""
        allocation = allocate(self._how.spec, self._state(), self.recommended, target=_REVISION, serving=_REVISION)
        for role in ENGINE_ROLES:
            before, count = len(self.pods(role)), allocation.replicas[role][_REVISION]
            if count != before:
                self._scaled(role, count - before)
                self._scale(role, count)

    def _recommend(self, role: Role, scaler: Scaler) -> None:
        targets = {target.metric: target.average_value for target in scaler.targets} if isinstance(scaler, Hpa) else {}
        metrics = self._metrics(role, self.signals.metrics(role, targets))
        live, asked_for = len(self.pods(role)), self.recommended[role]
        self.recommended[role] = scaler.sync(self._clock.now, asked_for, metrics, live=live)
        self.reconcile()

    def _scale(self, role: Role, count: int) -> None:
        """Start or drain pods. The youngest go first, as with a StatefulSet and a Deployment."""
        pods = self.pods(role)
        for _ in range(count - len(pods)):
            self._fleet.add(role, self._clock.now + self._how.startup())
        for pod in reversed(pods[count:]):
            self._fleet.drain(pod)

    def _state(self) -> ScaledFleet:
        gpus = {role: self._how.spec.roles[role].gpus for role in ENGINE_ROLES}
        workloads = [
            WorkloadState(role, role, _REVISION, len(self.pods(role)), gpus=gpus[role]) for role in ENGINE_ROLES
        ]
        pods = [
            PodSummary("p", role, _REVISION, terminating=pod.draining, gpus=gpus[role])
            for role in ENGINE_ROLES
            for pod in self._fleet.every(role)
            if pod.gone_at is None
        ]
        return ScaledFleet(workloads, pods)


def pod_seconds(fleet: SimulatedFleet, until: float) -> float:
    """Seconds from the creation of each pod to its end."""
    return sum(
        min(until, math.inf if pod.gone_at is None else pod.gone_at) - pod.created_at
        for role in ENGINE_ROLES
        for pod in fleet.every(role)
        if pod.created_at < until
    )
