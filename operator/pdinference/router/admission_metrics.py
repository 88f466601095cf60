"""Exports how long D pods waited for their first canary, for `pdinference status --startup`.

Tests: tests/router/test_admission_metrics.py
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pdinference.api.names import METRIC_ADMISSION_SECONDS, Role
from pdinference.router.pods import Pods

HELP: Final = "Seconds from the readiness of a D pod until requests went to it, if this router pod has seen both."
MOST: Final = 128
"""Pods that are exported at most: those that became ready last."""


class AdmissionMetrics(Collector):
    """The D pods that requests go to."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series."""
        family = GaugeMetricFamily(METRIC_ADMISSION_SECONDS, HELP, labels=[Role.DECODE])
        admitted = [
            (pod.ready_at, pod.observed.name, pod.waited)
            for pod in self._pods
            if pod.ready_at is not None and pod.waited is not None
        ]
        for _, name, waited in sorted(admitted, reverse=True)[:MOST]:
            family.add_metric([name], waited)
        yield family
