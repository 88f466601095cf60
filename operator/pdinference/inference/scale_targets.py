"""The scale targets (PDScaler) of autoscaled roles: what is read from them, and what the operator writes to them."""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1.scaler import ScalerStatus
from pdinference.cluster.kinds import SCALER, ChildKey
from pdinference.inference.snapshot import Snapshot
from pdinference.planning import conditions
from pdinference.planning.conditions import Judgement
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.scaling.baseline import best_baseline


def recommended(snapshot: Snapshot) -> dict[Role, int | None]:
    """What scalers ask for; None for a role whose scale target is new."""
    scalers = {role: snapshot.scaler(role) for role in snapshot.desired.autoscaled}
    return {role: scaler.recommended if scaler is not None else None for role, scaler in scalers.items()}


def seeds(snapshot: Snapshot, allocation: Allocation, *, asleep: bool) -> dict[ChildKey, int]:
    """Recommended counts that the operator has to set.

    A new scale target starts with the count that the role has, so that nothing changes. One of a role that sleeps is
    reset to the minimum, with which the role wakes.
    """
    found = {}
    for role, count in recommended(snapshot).items():
        minimum = snapshot.desired.scale.roles[role].minimum
        if asleep and count != minimum:
            found[snapshot.role_key(SCALER.name, role)] = minimum
        elif count is None:
            found[snapshot.role_key(SCALER.name, role)] = _first(snapshot, allocation, role)
    return found


def _first(snapshot: Snapshot, allocation: Allocation, role: Role) -> int:
    """The count that a new scale target begins with: what the role would have without its limits."""
    limit = allocation.limited.get(role)
    return limit.recommended if limit is not None else allocation.replicas[role][snapshot.desired.revision]


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
        limited = conditions.written(
            {conditions.LIMITED: _limited(allocation, role)}, generation=snapshot.resource.generation, now=snapshot.now
        )
        yield (
            role,
            state,
            ScalerStatus(
                replicas=counts[revision] if role in snapshot.leading_workloads(revision) else 0,
                selector=names.selector_text(names.role_selector(snapshot.owner.name, role, revision)),
                revision=revision,
                baseline_inter_token_microseconds=best_baseline(state, revision, snapshot.measured.paces)
                if role is Role.DECODE
                else None,
                conditions=conditions.carry_over(limited, state.conditions),
            ),
        )


def _limited(allocation: Allocation, role: Role) -> Judgement:
    limit = allocation.limited.get(role)
    if limit is None:
        return Judgement("False", "AsRecommended", "The role has the recommended number of replicas.")
    return Judgement("True", limit.reason, limit.message)


def _says(state: ScalerState, status: ScalerStatus) -> bool:
    return (state.replicas, state.selector, state.revision, state.baseline_microseconds, state.conditions) == (
        status.replicas,
        status.selector,
        status.revision,
        status.baseline_inter_token_microseconds,
        tuple(status.conditions),
    )
