"""The scale targets (PDScaler) of autoscaled roles: what the operator reads from them and writes to them.

Tests: tests/inference/test_scaling.py, tests/inference/test_sleep.py
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1.scaler import ScalerStatus
from pdinference.cluster.kinds import SCALER, ChildKey
from pdinference.inference.snapshot import Snapshot
from pdinference.planning import condition_changes
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.scaling.baseline import best_baseline


def recommended(snapshot: Snapshot) -> dict[Role, int | None]:
    """The recommended count of each autoscaled role; None while its scale target has none."""
    scalers = {role: snapshot.scaler(role) for role in snapshot.desired.autoscaled}
    return {role: scaler.recommended if scaler is not None else None for role, scaler in scalers.items()}


def manifest_counts(
    snapshot: Snapshot, allocation: Allocation, counts: Mapping[Role, int | None]
) -> dict[ChildKey, int]:
    """The recommended count in the manifest of each scale target: its own, or the role's current count.

    So a new scale target changes no counts, and neither does an upgrade from a version without scale targets. A count
    that a scaler writes during the apply is lost until that scaler evaluates again.
    """
    found = {}
    for role, count in counts.items():
        limit = allocation.limited.get(role)
        unlimited = limit.recommended if limit is not None else allocation.replicas[role][snapshot.desired.revision]
        found[snapshot.role_key(SCALER.name, role)] = count if count is not None else unlimited
    return found


def corrections(snapshot: Snapshot, wanted: Mapping[ChildKey, int], *, asleep: bool) -> dict[ChildKey, int]:
    """Recommended counts that the operator writes to existing scale targets.

    For a sleeping role that is the minimum, with which the role wakes. A count that was removed is restored.

    Args:
        snapshot: The observed state.
        wanted: The counts in the manifests.
        asleep: Whether P and D scale to zero.
    """
    found = {}
    for role in snapshot.desired.autoscaled:
        scaler, key = snapshot.scaler(role), snapshot.role_key(SCALER.name, role)
        count = snapshot.desired.scale.roles[role].minimum if asleep else wanted[key]
        if scaler is not None and scaler.recommended != count:
            found[key] = count
    return found


def reports(snapshot: Snapshot, allocation: Allocation, rollout: RolloutPlan) -> dict[ChildKey, Mapping[str, Any]]:
    """The new status of each scale target whose status is outdated, as merge patches."""
    return {
        snapshot.role_key(SCALER.name, role): status.model_dump(mode="json", by_alias=True)
        for role, state, status in _statuses(snapshot, allocation, rollout)
        if not _is_current(state, status)
    }


def _statuses(
    snapshot: Snapshot, allocation: Allocation, rollout: RolloutPlan
) -> Iterator[tuple[Role, ScalerState, ScalerStatus]]:
    for role in snapshot.desired.autoscaled:
        if (state := snapshot.scaler(role)) is None:
            continue
        counts = allocation.replicas[role]
        revision = rollout.serving if rollout.serving in counts else snapshot.desired.revision
        limited = condition_changes.build_conditions(
            {condition_changes.LIMITED: _limited(allocation, role)},
            generation=snapshot.resource.generation,
            now=snapshot.now,
        )
        yield (
            role,
            state,
            ScalerStatus(
                replicas=counts[revision] if role in snapshot.leading_workloads(revision) else 0,
                selector=names.selector_text(names.role_selector(snapshot.owner.name, role, revision)),
                revision=revision,
                baseline_inter_token_microseconds=best_baseline(state, revision, snapshot.observations.load.baselines)
                if role is Role.DECODE
                else None,
                conditions=condition_changes.carry_over(limited, state.conditions),
            ),
        )


def _limited(allocation: Allocation, role: Role) -> ConditionResult:
    limit = allocation.limited.get(role)
    if limit is None:
        return ConditionResult("False", "AsRecommended", "The role has the recommended number of replicas.")
    return ConditionResult("True", limit.reason, limit.message)


def _is_current(state: ScalerState, status: ScalerStatus) -> bool:
    return (state.replicas, state.selector, state.revision, state.baseline_microseconds, state.conditions) == (
        status.replicas,
        status.selector,
        status.revision,
        status.baseline_inter_token_microseconds,
        tuple(status.conditions),
    )
