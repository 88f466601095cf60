"""Takes the snapshots for reconciles of PDInferences."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pdinference.api.names import PodFault
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import ResourceRecord
from pdinference.controller.status_writer import status_of
from pdinference.examination.desired import Desired
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.objectives import StreamCounts
from pdinference.planning.scaling.condition import MeasuredLoad
from pdinference.planning.scaling.sleep_and_wake import Activity
from pdinference.planning.transfer_measurements import TransferFacts
from pdinference.planning.utilization import Utilization


@dataclass(frozen=True, slots=True)
class Snapshotter:
    """Takes snapshots.

    Attributes:
        cache: The live objects.
        measured: Metrics of a resource's pods.
        activity: The requests of a resource; None when unknown.
        fell_back: Whether D has recently computed prompts of a resource in place of P; None when unknown.
        pod_faults: P and D pods of a resource that do not answer its routers, by name.
        transfer: What the routers of a resource report of its KV transfer; None when unknown.
        streams: What the routers of a resource report of streamed answers; None when unknown.
        utilization: How much of a resource's P and D was in use.
        now: Current time.
        history_due: Whether a resource's history has to be written.
        unproven: Whether a resource's history does not say yet that requests went to its stored spec.
    """

    cache: Cache
    measured: Callable[[Owner], MeasuredLoad] = lambda _: MeasuredLoad()
    activity: Callable[[Owner], Activity | None] = lambda _: None
    fell_back: Callable[[Owner], bool | None] = lambda _: None
    pod_faults: Callable[[Owner], Mapping[str, PodFault]] = lambda _: {}
    transfer: Callable[[Owner], TransferFacts | None] = lambda _: None
    streams: Callable[[Owner], StreamCounts | None] = lambda _: None
    utilization: Callable[[Owner], Utilization] = lambda _: Utilization()
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    history_due: Callable[[ResourceRecord], bool] = lambda _: False
    unproven: Callable[[ResourceRecord], bool] = lambda _: False

    def take(
        self, resource: ResourceRecord, desired: Desired, *, invalid: str = "", withheld: bool = False
    ) -> Snapshot:
        """The current state, without I/O.

        Args:
            resource: The stored resource.
            desired: The desired state from the spec in effect.
            invalid: The error of the stored spec; empty without one.
            withheld: Whether the stored spec is not in effect because the resource is paused.
        """
        owner = resource.owner
        in_place = {key: record for key in desired.fingerprints if (record := self.cache.children.get(key)) is not None}
        return Snapshot(
            resource=resource,
            desired=desired,
            previous=status_of(resource),
            children=in_place | {record.key: record for record in self.cache.children_of(owner)},
            pods=self.cache.pods_of(owner),
            measured=self.measured(owner),
            activity=self.activity(owner),
            fell_back=self.fell_back(owner),
            pod_faults=self.pod_faults(owner),
            transfer=self.transfer(owner),
            streams=self.streams(owner),
            utilization=self.utilization(owner),
            now=self.now(),
            invalid=invalid,
            withheld=withheld,
            history_due=self.history_due(resource),
            unproven=self.unproven(resource),
        )
