"""The scale targets (PDScaler) of autoscaled roles: what is read from them, and what the operator writes to them."""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1.scaler import ScalerStatus
from pdinference.cluster.kinds import SCALER, ChildKey
from pdinference.inference.snapshot import Snapshot
from pdinference.planning import conditions
from pdinference.planning.conditions import ConditionResult
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.scaling.baseline import best_baseline


def recommended(snapshot: Snapshot) -> dict[Role, int | None]:
    """What scalers ask for; None for a role whose scale target is new."""
    scalers = {role: snapshot.scaler(role) for role in snapshot.desired.autoscaled}
    return {role: scaler.recommended if scaler is not None else None for role, scaler in scalers.items()}


def first_counts(snapshot: Snapshot, allocation: Allocation) -> dict[ChildKey, int]:
    """The recommended count that each scale target is applied with: its own, or that of the role as it is.

    A new scale target so changes nothing; an upgrade from a version without them neither. A count that a scaler writes
    while an existing one is applied is lost, until that scaler looks again.
    """
    found = {}
    for role, count in recommended(snapshot).items():
        limit = allocation.limited.get(role)
        unlimited = limit.recommended if limit is not None else allocation.replicas[role][snapshot.desired.revision]
        found[snapshot.role_key(SCALER.name, role)] = count if count is not None else unlimited
    return found


def corrections(snapshot: Snapshot, allocation: Allocation, *, asleep: bool) -> dict[ChildKey, int]:
    """Recommended counts that the operator writes although the scale target exists.

    That of a role that sleeps is lowered to the minimum, with which the role wakes. One that somebody took out comes
    back.
    """
    wanted = first_counts(snapshot, allocation)
    minimums = {role: snapshot.desired.scale.roles[role].minimum for role in snapshot.desired.autoscaled}
    found = {}
    for role, scaler in ((role, snapshot.scaler(role)) for role in snapshot.desired.autoscaled):
        key = snapshot.role_key(SCALER.name, role)
        count = minimums[role] if asleep else wanted[key]
        if scaler is not None and scaler.recommended != count:
            found[key] = count
    return found


def reports(snapshot: Snapshot, allocation: Allocation, rollout: RolloutPlan) -> dict[ChildKey, Mapping[str, Any]]:
    """The status of each scale target that does not say how its role is now, as merge patches."""
    return {
        snapshot.role_key(SCALER.name, role): status.model_dump(mode="json", by_alias=True)
        for role, state, status in _statuses(snapshot, allocation, rollout)
        if not _says(state, status)
    }


def _statuses(
    snapshot: Snapshot, allocation: Allocation, rollout: RolloutPlan
) -> Iterator[tuple[Role, ScalerState, ScalerStatus]]:
    for role in snapshot.desired.autoscaled:
        if (state := snapshot.scaler(role)) is None:
            continue
        counts = allocation.replicas[role]
        revision = rollout.serving if rollout.serving in counts else snapshot.desired.revision
        limited = conditions.build_conditions(
            {conditions.LIMITED: _limited(allocation, role)}, generation=snapshot.resource.generation, now=snapshot.now
        )
        yield (
            role,
            state,
            ScalerStatus(
                replicas=counts[revision] if role in snapshot.leading_workloads(revision) else 0,
                selector=names.selector_text(names.role_selector(snapshot.owner.name, role, revision)),
                revision=revision,
                baseline_inter_token_microseconds=best_baseline(state, revision, snapshot.measured.baselines)
                if role is Role.DECODE
                else None,
                conditions=conditions.carry_over(limited, state.conditions),
            ),
        )


def _limited(allocation: Allocation, role: Role) -> ConditionResult:
    limit = allocation.limited.get(role)
    if limit is None:
        return ConditionResult("False", "AsRecommended", "The role has the recommended number of replicas.")
    return ConditionResult("True", limit.reason, limit.message)


def _says(state: ScalerState, status: ScalerStatus) -> bool:
    return (state.replicas, state.selector, state.revision, state.baseline_microseconds, state.conditions) == (
        status.replicas,
        status.selector,
        status.revision,
        status.baseline_inter_token_microseconds,
        tuple(status.conditions),
    )
