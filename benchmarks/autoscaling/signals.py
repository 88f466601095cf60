"""The scaling signals of a simulated fleet: the operator's own code computes them from the pods' metrics."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from pdinference.api.names import Role
from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.baselines import Baselines
from pdinference.loadmetrics.rises import LOADS, Rises
from pdinference.loadmetrics.scraping.exposition import Histogram, Reading
from pdinference.loadmetrics.scraping.window import TimedReading, Window
from pdinference.loadmetrics.signals import LoadUnavailableError, PodLoad, Upstream, measure
from pdinference.memory.observed import KvCache
from pdinference.planning.scaling.signals import Signal
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet
from pdinference_advise.simulation.pods import SimulatedPod

SCRAPE_SECONDS: Final = 5.0
"""Time between two readings of a pod (`loadmetrics/scraping/scrape.py`)."""
_OWNER: Final = Owner("simulation", "simulation")
_REVISION: Final = "simulated"

Metrics = Mapping[str, float | None]
"""The value of each metric of a role; None while it is unknown."""

SIGNALS: Final[Mapping[Role, tuple[Signal, ...]]] = {
    Role.PARAMETER: (Signal.PREFILL_LOAD,),
    Role.DECODE: (Signal.DECODE_LOAD, Signal.KV_USAGE, Signal.KV_DEMAND),
}
"""The signals that are computed for each role."""


class Signals:
    """Reads pods at intervals. Between two readings everybody sees old values.

    Args:
        clock: Simulated time.
        fleet: The pods.
        ahead: Seconds that a pod takes to start, if loads are those that are expected then.
    """

    def __init__(self, clock: Clock, fleet: SimulatedFleet, ahead: float | None = None) -> None:
        self._clock, self._fleet, self._ahead = clock, fleet, ahead
        self._rises = Rises()
        self._windows: dict[SimulatedPod, Window] = {}
        self._baselines = Baselines()

    def read(self) -> None:
        """Read every pod that serves."""
        now = self._clock.now
        for role in SIGNALS:
            for pod in self._fleet.serving(role):
                window = self._windows.setdefault(pod, Window())
                window.add(TimedReading(now, datetime.fromtimestamp(now, UTC), reading_of(pod)))
                if role is Role.DECODE:
                    self._baselines.note(_OWNER, _REVISION, window, now)

    def metrics(self, role: Role, targets: Mapping[str, float]) -> dict[str, float | None]:
        """The signals of a role.

        Args:
            role: P or D.
            targets: Target value per pod of each signal, as far as there is one.
        """
        return {signal: self._value(role, signal, targets.get(signal)) for signal in SIGNALS[role]}

    def _value(self, role: Role, signal: Signal, target: float | None) -> float | None:
        upstream = Upstream(self._loads(Role.PARAMETER), self._baselines.shortest(_OWNER, (_REVISION,), None))
        try:
            now = self._clock.now
            value = measure(signal, self._loads(role), target=target, now=now, upstream=upstream).value
        except LoadUnavailableError:
            return None
        if self._ahead is None or signal not in LOADS:
            return value
        return self._rises.expected((_OWNER, role, signal), value, now=now, start_seconds=self._ahead)

    def _loads(self, role: Role) -> list[PodLoad]:
        serving = self._fleet.serving(role)
        return [
            PodLoad(self._windows.get(pod) or Window(), expected=pod in serving, counted=True)
            for pod in self._fleet.every(role)
            if not pod.draining
        ]


def reading_of(pod: SimulatedPod) -> Reading:
    """What the metrics of a pod would report now."""
    engine, limits = pod.engine, pod.engine.limits
    progress = engine.progress()
    return Reading(
        kv_usage=min(1.0, max(0.0, progress.kv_used / limits.kv_tokens)),
        running=engine.in_steps,
        waiting=engine.waiting + engine.pulling,
        holding=engine.pulling,
        cache=KvCache(limits.kv_tokens // limits.block, limits.block),
        prompt_tokens=pod.prompt_tokens,
        generation_tokens=progress.generated,
        prompt_lengths=Histogram((), pod.prompt_tokens, engine.finished),
        answer_lengths=Histogram((), pod.answer_tokens, engine.finished),
        prefill=Histogram((), engine.prefill_seconds, engine.finished),
        first_token=None,
        inter_token=Histogram((), progress.token_seconds, progress.decoded),
    )
