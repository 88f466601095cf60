"""Exports when requests first went to D pods, for `pdinference status --startup`.

Tests: tests/router/test_admission_metrics.py
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pdinference.api.names import METRIC_ADMISSION_TIME, Role
from pdinference.router.pods import Pods

HELP: Final = "When requests first went to a D pod that this router pod has seen become ready, in Unix time."
MOST: Final = 128
"""Pods that are exported at most, the latest ones."""


class AdmissionMetrics(Collector):
    """The D pods that requests go to."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series."""
        family = GaugeMetricFamily(METRIC_ADMISSION_TIME, HELP, labels=[Role.DECODE])
        admitted = [(pod.admitted_at, pod.observed.name) for pod in self._pods if pod.admitted_at is not None]
        for at, name in sorted(admitted, reverse=True)[:MOST]:
            family.add_metric([name], at)
        yield family
