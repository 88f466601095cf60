"""Autoscaling in a reconcile: which revision HPAs follow, and how many pods everything else gets."""

from collections.abc import Mapping

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.apply import Child
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import AUTOSCALER, ChildKey, Owner
from pdinference.cluster.records import ChildRecord, ResourceRecord
from pdinference.controller.desired import Desired
from pdinference.manifests import following
from pdinference.planning.observed import AutoscalerState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.replicas import WantedCount, follower_count, scaled_revision, wanted_count


def followed_revision(cache: Cache, resource: ResourceRecord, desired: Desired, plan: RolloutPlan) -> str:
    """The revision that HPAs follow; empty as long as none serves."""
    exists = all(_record(cache, resource, role, plan.serving) is not None for role in names.ENGINE_ROLES)
    routed = desired.replicas[Role.ROUTER] > 0
    return scaled_revision(plan, desired.revision, serving_exists=exists, routed=routed)


def wanted_counts(
    cache: Cache, resource: ResourceRecord, desired: Desired, followed: str
) -> dict[ChildKey, WantedCount]:
    """How many pods the workloads of the target revision should have, of roles that are autoscaled."""
    counts: dict[ChildKey, WantedCount] = {}
    for role, scale in desired.scales.items():
        if asleep_now(cache, resource, desired):
            counts[_key(resource.owner, role, desired.revision)] = WantedCount(scale.minimum, followed=True)
            continue
        elsewhere = followed if followed != desired.revision else ""
        counts[_key(resource.owner, role, desired.revision)] = wanted_count(
            scale,
            live=_count(_record(cache, resource, role, desired.revision)),
            serving=_count(_record(cache, resource, role, elsewhere)),
            followed=followed == desired.revision,
        )
    if Role.PARAMETER in desired.scales:
        leader = _key(resource.owner, Role.PARAMETER, desired.revision)
        live = _count(_record(cache, resource, Role.PARAMETER, desired.revision))
        for rank in range(1, desired.nodes):
            node = names.node_workload(resource.owner.name, rank, desired.revision)
            counts[leader._replace(name=node)] = follower_count(counts[leader], live)
    return counts


def asleep_now(cache: Cache, resource: ResourceRecord, desired: Desired) -> bool:
    """Whether a pair that may sleep has no pods."""
    records = [_record(cache, resource, role, desired.revision) for role in names.ENGINE_ROLES]
    return desired.sleeps_after is not None and all(record is not None and _count(record) == 0 for record in records)


def trailing_counts(
    cache: Cache, resource: ResourceRecord, desired: Desired, followed: str
) -> dict[ChildKey, WantedCount]:
    """What is to change in the further nodes of P instances of an old revision, whose first nodes an HPA scales."""
    leader = _record(cache, resource, Role.PARAMETER, followed)
    if Role.PARAMETER not in desired.scales or leader is None or followed == desired.revision:
        return {}
    wanted = WantedCount(_count(leader), followed=False)
    return {
        child.key: wanted
        for child in cache.children_of(resource.owner)
        if child.owner_uid == resource.uid and not child.deleting and _trails(child, followed, wanted)
    }


def _trails(child: ChildRecord, followed: str, wanted: WantedCount) -> bool:
    workload = child.workload
    return (
        workload is not None
        and workload.role is Role.PARAMETER
        and workload.node_rank > 0
        and workload.revision == followed
        and not wanted.met_by(workload.desired)
    )


def autoscalers(desired: Desired, followed: str) -> tuple[Child, ...]:
    """The HPAs, each for the workload of the revision that they follow; none as long as none serves."""
    if not followed:
        return ()
    return tuple(Child.of(following(hpa, role, followed)) for role, hpa in desired.autoscalers.items())


def live_autoscalers(cache: Cache, resource: ResourceRecord, desired: Desired) -> Mapping[Role, AutoscalerState | None]:
    """What the HPA of each autoscaled role thinks; None where there is none."""
    owner = resource.owner
    found = {
        role: cache.children.get(ChildKey(AUTOSCALER.name, owner.namespace, names.role_object(owner.name, role)))
        for role in desired.scales
    }
    return {
        role: record.autoscaler if record is not None and record.owner_uid == resource.uid else None
        for role, record in found.items()
    }


def _key(owner: Owner, role: Role, revision: str) -> ChildKey:
    name = names.engine_workload(owner.name, role, revision)
    return ChildKey(names.WORKLOAD_KINDS[role], owner.namespace, name)


def _record(cache: Cache, resource: ResourceRecord, role: Role, revision: str) -> ChildRecord | None:
    record = cache.children.get(_key(resource.owner, role, revision)) if revision else None
    return record if record is not None and record.owner_uid == resource.uid and not record.deleting else None


def _count(record: ChildRecord | None) -> int:
    return record.workload.desired if record is not None and record.workload is not None else 0
