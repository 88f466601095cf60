"""The plan of a reconcile: everything to write, and the decisions for the status.

Tests: tests/inference/test_reconcile.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pdinference.cluster.kinds import ChildKey
from pdinference.cluster.state.records import ChildRecord
from pdinference.cluster.verdict import Verdict
from pdinference.planning.repair import Repair
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.allocation import Allocation


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of `decide`.

    Attributes:
        rollout: Which revision serves, and which may be deleted.
        allocation: The replica count of each role and revision.
        asleep: Whether P and D scale to zero because no requests arrived (`scaleToZero`).
        awaits_model: Whether P and D wait for their model.
        apply: Children to apply, and why.
        replicas: The replica count of each workload; applied workloads get it in their manifests.
        scale: Workloads whose replica count changes, and nothing else.
        recommend: Scale targets whose recommended count the operator sets: new ones, and those of sleeping roles.
        report: The status of scale targets, as merge patches.
        remember: Whether to write the spec as the newest entry of the history, or to delete entries.
        served: Whether requests go to the spec, which its entry then says.
        delete: Children that are no longer needed.
        repair: Whether a pod is restarted because its KV transfer is proven broken.
        requeue_after: Seconds until P and D may fall asleep, without an event; None for never.
    """

    rollout: RolloutPlan
    allocation: Allocation
    asleep: bool = False
    awaits_model: bool = False
    apply: Mapping[ChildKey, Verdict] = field(default_factory=dict)
    replicas: Mapping[ChildKey, int] = field(default_factory=dict)
    scale: Mapping[ChildKey, int] = field(default_factory=dict)
    recommend: Mapping[ChildKey, int] = field(default_factory=dict)
    report: Mapping[ChildKey, Mapping[str, Any]] = field(default_factory=dict)
    delete: tuple[ChildRecord, ...] = ()
    remember: bool = False
    served: bool = False
    repair: Repair = field(default_factory=Repair)
    requeue_after: float | None = None

    @property
    def empty(self) -> bool:
        """Whether there is no object to write."""
        return not (self.apply or self.scale or self.recommend or self.report or self.delete or self.remember)
