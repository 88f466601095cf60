"""Computes the signals and latencies of roles for the external metrics API and the gauges.

Tests: tests/loadmetrics/test_gauges.py, tests/loadmetrics/test_scrape.py
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from pdinference.api.names import Role
from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.latencies import measure_latencies, measure_latency
from pdinference.loadmetrics.policies import Policies
from pdinference.loadmetrics.rises import LOADS, Rises
from pdinference.loadmetrics.scraping.scrape import Scraper
from pdinference.loadmetrics.signals import LoadUnavailableError, PodLoad, SignalMeasurement, Upstream, measure
from pdinference.planning.scaling.signals import LATENCY_METRICS, Latency, Signal

_LARGEST: Final = 1e12
"""Maximum value. Kubernetes quantities and HPAs store thousandths in 63 bits."""
_QUANTILES: Final = {
    kind: {metric: quantile for metric, (of_kind, quantile) in LATENCY_METRICS.items() if of_kind is kind}
    for kind in Latency
}
"""Quantiles of each kind of latency by the name of the metric."""


class Loads:
    """Computes metrics of roles from the last readings of their pods.

    Args:
        scraper: The readings.
        policies: The targets of autoscalers.
        start_seconds: How long pods of a role take until they are ready; None if no start was seen.
        clock: Time of the readings.
    """

    def __init__(
        self,
        scraper: Scraper,
        policies: Policies,
        start_seconds: Callable[[Owner, Role], float | None] = lambda _owner, _role: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scraper = scraper
        self._policies = policies
        self._start_seconds = start_seconds
        self._clock = clock
        self._rises = Rises()

    def measured(self, owner: Owner, role: Role, metric: str) -> SignalMeasurement:
        """The value of one metric (`METRICS`) of a role.

        Raises:
            LoadUnavailableError: The value is not known.
        """
        pods = self._scraper.pods(owner, role)
        if metric in LATENCY_METRICS:
            return measure_latency(metric, pods, now=self._clock())
        signal = Signal(metric)
        return self._signal(signal, owner, role, pods, self._policies.policy(owner).get(role, {}).get(signal))

    def known(self, owner: Owner, role: Role, targets: Mapping[Signal, float]) -> Iterator[tuple[str, float]]:
        """Name and value of each known metric of a role; `targets` has the target values per pod."""
        pods = self._scraper.pods(owner, role)
        for signal in Signal:
            with suppress(LoadUnavailableError):
                yield signal, self._signal(signal, owner, role, pods, targets.get(signal)).value
        for kind, quantiles in _QUANTILES.items():
            with suppress(LoadUnavailableError):
                found = measure_latencies(kind, pods, quantiles.values(), now=self._clock())
                yield from zip(quantiles, (one.value for one in found), strict=True)

    def _signal(
        self, signal: Signal, owner: Owner, role: Role, pods: list[PodLoad], target: float | None
    ) -> SignalMeasurement:
        """The value for the pods of a role. The target is that of one engine, and an autoscaler counts pods."""
        answers = self._policies.is_adaptive(owner)
        upstream = self._upstream(owner, answers=answers) if signal is Signal.DECODE_LOAD else Upstream()
        found = measure(signal, pods, target=target, now=self._clock(), upstream=upstream, answers=answers)
        if not math.isfinite(found.value):
            raise LoadUnavailableError("the sum of the reported values is not a finite number")
        value = self._ahead(signal, owner, role, found.value / self._scraper.engines_in_a_pod(owner, role))
        return SignalMeasurement(min(max(0.0, value), _LARGEST), found.when)

    def _ahead(self, signal: Signal, owner: Owner, role: Role, value: float) -> float:
        """The load when a pod that is created now is ready; the present value of other signals."""
        if signal not in LOADS or not self._policies.looks_ahead(owner, role):
            return value
        seconds = self._start_seconds(owner, role)
        if seconds is None:
            return value
        return self._rises.expected((owner, role, signal), value, now=self._clock(), start_seconds=seconds)

    def _upstream(self, owner: Owner, *, answers: bool) -> Upstream:
        reached = self._scraper.pods(owner, Role.DECODE) if answers else None
        return Upstream(
            self._scraper.pods(owner, Role.PARAMETER), self._scraper.idle_token_seconds(owner), reached=reached
        )
