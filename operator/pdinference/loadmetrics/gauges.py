"""Exports the computed signals as gauges on the operator's /metrics, for KEDA, prometheus-adapter and dashboards."""

import asyncio
import math
import time
from typing import Final

from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.loads import Loads
from pdinference.loadmetrics.policies import Policies
from pdinference.planning.scaling.gauges import LABEL_NAME, LABEL_NAMESPACE, LABEL_ROLE
from pdinference.planning.scaling.signals import METRICS

_SLICE_S: Final = 0.02
"""Maximum time of computing before it yields to the event loop."""
_KEPT_S: Final = 1.0
_HELP: Final = "Computed from the metrics of a role's vLLM pods; docs/autoscaling.md has its unit."


class SignalGauges:
    """One gauge for each metric, with a sample for each autoscaled role whose value is known.

    Each replica of the operator scrapes pods and exports the gauges. They are computed when Prometheus scrapes them.
    An unknown metric has no sample, so Prometheus marks its series stale.
    """

    def __init__(self, policies: Policies, loads: Loads) -> None:
        self._policies = policies
        self._loads = loads
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
        samples: dict[str, list[str]] = {metric: [] for metric in METRICS}
        until = time.monotonic() + _SLICE_S
        for owner, policy in self._policies.autoscaled():
            for role, targets in policy.items():
                labels = _labels(owner, role)
                for metric, value in self._loads.known(owner, role, targets):
                    samples[metric].append(f"{metric}{{{labels}}} {value:.10g}\n")
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + _SLICE_S
        return "".join(
            f"# HELP {metric} {_HELP}\n# TYPE {metric} gauge\n{''.join(lines)}"
            for metric, lines in samples.items()
            if lines
        )


def _labels(owner: Owner, role: str) -> str:
    """Labels of a sample. Names of Kubernetes objects and roles need no escaping."""
    return f'{LABEL_NAMESPACE}="{owner.namespace}",{LABEL_NAME}="{owner.name}",{LABEL_ROLE}="{role}"'
