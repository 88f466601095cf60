"""Takes the snapshots for reconciles of PDInferences.

Tests: tests/inference/test_reconcile.py, tests/inference/test_last_valid_spec.py
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pdinference.cluster.cache import Cache
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import ChildKey, Owner
from pdinference.cluster.state.records import ResourceRecord
from pdinference.controller.status_writer import status_of
from pdinference.examination.desired import EffectiveSpec
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.observations import Observations


@dataclass(frozen=True, slots=True)
class Snapshotter:
    """Takes snapshots, without I/O.

    Attributes:
        cache: The live objects.
        history: The histories of valid specs.
        observations: What is measured of a resource.
        now: Current time.
    """

    cache: Cache
    history: History
    observations: Callable[[Owner], Observations] = lambda _: Observations()
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def take(self, resource: ResourceRecord, spec: EffectiveSpec) -> Snapshot:
        """The current state of a resource with this spec in effect."""
        owner, found = resource.owner, self.cache.children
        in_place = {key: record for key in spec.desired.fingerprints if (record := found.get(key)) is not None}
        return Snapshot(
            resource=resource,
            spec=spec,
            previous=status_of(resource),
            children=in_place | {record.key: record for record in self.cache.children_of(owner)},
            pods=self.cache.pods_of(owner),
            observations=self.observations(owner),
            now=self.now(),
            history_due=self.history.is_due(resource),
            unproven=self.history.is_unproven(resource),
        )

    def after(self, snapshot: Snapshot, written: Iterable[ChildKey]) -> Snapshot:
        """The same snapshot with these children as the API server returned them for writes."""
        fresh = {key: record for key in written if (record := self.cache.children.get(key)) is not None}
        return replace(snapshot, children={**snapshot.children, **fresh}) if fresh else snapshot
