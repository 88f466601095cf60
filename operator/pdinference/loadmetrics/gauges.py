"""Exports metrics of resources as gauges on the operator's /metrics: signals, objectives; use, memory, starts of roles.

KEDA, prometheus-adapter and dashboards read them.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics import memory_gauges, objective_gauges, start_gauges
from pdinference.loadmetrics.loads import Loads
from pdinference.loadmetrics.objective_gauges import GaugeSample
from pdinference.loadmetrics.policies import Policies
from pdinference.planning.scaling.gauges import LABEL_NAME, LABEL_NAMESPACE, LABEL_ROLE
from pdinference.planning.scaling.signals import METRICS

_SLICE_S: Final = 0.02
"""Maximum time of computing before it yields to the event loop."""
_KEPT_S: Final = 1.0
HELP: Final = {**objective_gauges.HELP, **memory_gauges.HELP, **start_gauges.HELP}
"""The gauges beside the signals, and what they are."""
HELP_OF_SIGNALS: Final = "Computed from the metrics of a role's vLLM pods; docs/autoscaling.md has its unit."


class SignalGauges:
    """One gauge for each metric, with a sample for each autoscaled role whose value is known.

    Args:
        policies: The resources that are measured.
        loads: The signals of autoscaled roles.
        further: Further samples of a resource.

    Each replica of the operator scrapes pods and exports the gauges. They are computed when Prometheus scrapes them.
    An unknown metric has no sample, so Prometheus marks its series stale.
    """

    def __init__(
        self, policies: Policies, loads: Loads, further: Callable[[Owner], Iterable[GaugeSample]] = lambda _: ()
    ) -> None:
        self._policies = policies
        self._loads = loads
        self._further = further
        self._lock = asyncio.Lock()
        self._last = ("", -math.inf)

    async def text(self) -> str:
        """The gauges in Prometheus' text format, computed at most once per second."""
        async with self._lock:
            text, at = self._last
            if time.monotonic() - at > _KEPT_S:
                text = await self._computed()
                self._last = (text, time.monotonic())
            return text

    async def _computed(self) -> str:
        samples: dict[str, list[str]] = {metric: [] for metric in (*METRICS, *HELP)}
        until = time.monotonic() + _SLICE_S
        for owner in self._policies.inferences():
            for metric, label, value in chain(self._signals(owner), self._further(owner)):
                samples[metric].append(f"{metric}{{{_labels(owner, label)}}} {value:.10g}\n")
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + _SLICE_S
        return "".join(
            f"# HELP {metric} {HELP.get(metric, HELP_OF_SIGNALS)}\n# TYPE {metric} gauge\n{''.join(lines)}"
            for metric, lines in samples.items()
            if lines
        )

    def _signals(self, owner: Owner) -> Iterator[GaugeSample]:
        for role, targets in self._policies.policy(owner).items():
            for metric, value in self._loads.known(owner, role, targets):
                yield GaugeSample(metric, (LABEL_ROLE, role), value)


def _labels(owner: Owner, further: tuple[str, str] | None) -> str:
    """Labels of a sample. Names of Kubernetes objects, roles and objectives need no escaping."""
    own = f'{LABEL_NAMESPACE}="{owner.namespace}",{LABEL_NAME}="{owner.name}"'
    return own if further is None else f'{own},{further[0]}="{further[1]}"'
