"""Exports the pods that give no answers although Kubernetes calls them ready, for the status of the resource."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pdinference.api.names import METRIC_POD_FAULT
from pdinference.router.pod import Pod
from pdinference.router.pods import Pods

HELP: Final = (
    "1 for each ready P or D pod that gives the router no answers, with its fault: refuses, hung, stalled or stuck."
)
MOST: Final = 32
"""Pods that are exported at most, the first ones by name."""


class PodFaults(Collector):
    """The ready pods with a fault. At rest there are none."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series."""
        family = GaugeMetricFamily(METRIC_POD_FAULT, HELP, labels=["pod", "fault"])
        found = sorted({(_name(pod), pod.fault) for pod in self._pods if pod.fault and pod.observed.ready})
        for name, fault in found[:MOST]:
            family.add_metric([name, fault], 1.0)
        yield family


def _name(pod: Pod) -> str:
    """Its name, or that of the whole pod where all its ranks have the fault."""
    if pod.observed.rank is None or any(one.fault is not pod.fault for one in pod.ranks):
        return pod.observed.name
    return pod.observed.name.rpartition("/")[0]
