"""What the operator measures at the pods of a PDInference, beside what Kubernetes says of them.

`LoadMonitor.observations` measures it. Snapshot and status hold the same object, so only its users name a fact again.
Tests: tests/runtime/test_load_monitor.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdinference.api.names import PodFault
from pdinference.planning.objectives import StreamCounts
from pdinference.planning.scaling.condition import MeasuredLoad
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from pdinference.planning.transfer_measurements import TransferFacts
from pdinference.planning.utilization import Utilization


@dataclass(frozen=True, slots=True)
class Observations:
    """Measured facts of a resource. The default of each one says that it is unknown.

    Attributes:
        load: Metrics of its vLLM pods.
        activity: Its requests, if it may scale to zero; None when unknown.
        fell_back: Whether D has recently computed prompts in place of P; None when unknown.
        pod_faults: P and D pods that do not answer the routers, by name.
        transfer: What the routers report of the KV transfer; None when unknown.
        streams: What the routers report of the streamed answers of the last minutes; None when unknown, and without
            objectives.
        utilization: How much of P and D was in use; unknown without objectives and autoscaling.
    """

    load: MeasuredLoad = field(default_factory=MeasuredLoad)
    activity: ReportedActivity | None = None
    fell_back: bool | None = None
    pod_faults: Mapping[str, PodFault] = field(default_factory=dict)
    transfer: TransferFacts | None = None
    streams: StreamCounts | None = None
    utilization: Utilization = field(default_factory=Utilization)
