"""Autoscaling in a reconcile: which revision HPAs follow, and how many pods everything else gets."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.apply import Child
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import AUTOSCALER, ChildKey, Owner
from pdinference.cluster.records import ChildRecord, ResourceRecord
from pdinference.controller.desired import Desired
from pdinference.manifests import Manifest, bounded, following
from pdinference.planning.observed import AutoscalerState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.coordination import Coordination, coordinate, grant_for
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.replicas import WantedCount, follower_count, scaled_revision, wanted_count


def followed_revision(cache: Cache, resource: ResourceRecord, desired: Desired, plan: RolloutPlan) -> str:
    """The revision that HPAs follow; empty as long as none serves."""
    exists = all(_record(cache, resource, role, plan.serving) is not None for role in names.ENGINE_ROLES)
    routed = desired.replicas[Role.ROUTER] > 0
    return scaled_revision(plan, desired.revision, serving_exists=exists, routed=routed)


def coordinated(cache: Cache, resource: ResourceRecord, desired: Desired, followed: str, now: datetime) -> Coordination:
    """What P and D may have together."""
    if desired.limits is None:
        return Coordination()
    children = (child for child in cache.children_of(resource.owner) if child.owner_uid == resource.uid)
    workloads = (child.workload for child in children if child.workload is not None and not child.deleting)
    return coordinate(
        desired.limits,
        Fleet(workloads, cache.pods_of(resource.owner)),
        live_autoscalers(cache, resource, desired),
        target=desired.revision,
        followed=followed,
        now=now,
    )


def wanted_counts(
    cache: Cache, resource: ResourceRecord, desired: Desired, followed: str, together: Coordination
) -> dict[ChildKey, WantedCount]:
    """How many pods the workloads of the target revision should have, where their manifests do not say so."""
    counts: dict[ChildKey, WantedCount] = {}
    for role, scale in desired.counted.items():
        elsewhere = followed if followed != desired.revision and role in desired.scales else ""
        counts[_key(resource.owner, role, desired.revision)] = wanted_count(
            scale.capped(together.most[role]) if role in together.most else scale,
            live=_count(_record(cache, resource, role, desired.revision)),
            serving=_count(_record(cache, resource, role, elsewhere)),
            followed=followed == desired.revision and role in desired.scales,
        )
    if Role.PARAMETER in desired.counted:
        leader = _key(resource.owner, Role.PARAMETER, desired.revision)
        live = _count(_record(cache, resource, Role.PARAMETER, desired.revision))
        for rank in range(1, desired.nodes):
            node = names.node_workload(resource.owner.name, rank, desired.revision)
            counts[leader._replace(name=node)] = follower_count(counts[leader], live)
    return counts


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


def autoscalers(
    desired: Desired,
    followed: str,
    together: Coordination,
    live: Mapping[Role, AutoscalerState | None],
    *,
    now: datetime,
    settle: timedelta,
) -> tuple[Child, ...]:
    """The HPAs, each for the workload of the revision that they follow; none as long as none serves."""
    if not followed:
        return ()

    def within_limits(role: Role, hpa: Manifest) -> Manifest:
        if role not in together.ranges:
            return hpa
        limits = together.ranges[role]
        grant = grant_for(live.get(role), limits.maximum, now, settle) if together.budget is not None else None
        return bounded(hpa, limits, grant)

    return tuple(
        Child.of(within_limits(role, following(hpa, role, followed))) for role, hpa in desired.autoscalers.items()
    )


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
