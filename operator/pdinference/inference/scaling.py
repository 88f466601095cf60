"""Autoscaling in a reconcile: what scales, which revision it follows, and how many pods everything else gets."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT, ChildKey, Owner
from pdinference.cluster.records import ChildRecord, ResourceRecord
from pdinference.examination.desired import Desired
from pdinference.manifests import Manifest, bounded, following, paced
from pdinference.planning.observed import AutoscalerState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.coordination import Coordination, coordinate
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.grants import grant_for
from pdinference.planning.scaling.pace import pace_for
from pdinference.planning.scaling.replicas import WantedCount, follower_count, scaled_revision, wanted_count
from pdinference.planning.scaling.source import stands_in


def followed_revision(cache: Cache, resource: ResourceRecord, desired: Desired, plan: RolloutPlan) -> str:
    """The revision that HPAs follow; empty as long as none serves.

    An old pair without P or D serves nobody and never will: it was asleep, or stopped, when the spec changed. KEDA
    would start it.
    """
    records = [_record(cache, resource, role, plan.serving) for role in names.ENGINE_ROLES]
    exists = None not in records and (plan.serving == desired.revision or all(map(_count, records)))
    routed = desired.replicas[Role.ROUTER] > 0
    return scaled_revision(plan, desired.revision, serving_exists=exists, routed=routed)


def coordinated(
    cache: Cache,
    resource: ResourceRecord,
    desired: Desired,
    live: Mapping[Role, AutoscalerState | None],
    *,
    followed: str,
    now: datetime,
) -> Coordination:
    """What P and D may have together."""
    if desired.limits is None:
        return Coordination()
    children = (child for child in cache.children_of(resource.owner) if child.owner_uid == resource.uid)
    workloads = (child.workload for child in children if child.workload is not None and not child.deleting)
    return coordinate(
        desired.limits,
        Fleet(workloads, cache.pods_of(resource.owner)),
        live,
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
        record = _record(cache, resource, role, desired.revision)
        wakes = desired.sleeps_after is not None and record is not None and _count(record) == 0
        allowed = scale.capped(together.most[role]) if role in together.most else scale
        elsewhere = followed if followed != desired.revision and role in desired.scales else ""
        counts[_key(resource.owner, role, desired.revision)] = wanted_count(
            allowed.least() if wakes else allowed,
            live=_count(record),
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


def asleep_now(cache: Cache, resource: ResourceRecord, desired: Desired) -> bool:
    """Whether a pair that may sleep has no pods."""
    records = [_record(cache, resource, role, desired.revision) for role in names.ENGINE_ROLES]
    return desired.sleeps_after is not None and all(record is not None and _count(record) == 0 for record in records)


def trailing_counts(
    cache: Cache, resource: ResourceRecord, desired: Desired, followed: str
) -> dict[ChildKey, WantedCount]:
    """What is to change in the further nodes of P instances of an old revision, whose first nodes an HPA scales."""
    if Role.PARAMETER not in desired.scales or followed == desired.revision:
        return {}
    return whole_instances(cache, resource, _record(cache, resource, Role.PARAMETER, followed))


def whole_instances(cache: Cache, resource: ResourceRecord, leader: ChildRecord | None) -> dict[ChildKey, WantedCount]:
    """What is to change in the further nodes of P instances, so that there are as many of each as of first nodes."""
    if leader is None or leader.workload is None:
        return {}
    revision, wanted = leader.workload.revision, WantedCount(_count(leader), followed=False)
    return {
        child.key: wanted
        for child in cache.children_of(resource.owner)
        if child.owner_uid == resource.uid and not child.deleting and _trails(child, revision, wanted)
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


def chosen_autoscalers(
    cache: Cache, resource: ResourceRecord, desired: Desired, *, served: bool | None
) -> Mapping[Role, Manifest]:
    """What is to scale each role: HPAs, or what stands in for them.

    Args:
        cache: What is there.
        resource: The resource.
        desired: What it asks for.
        served: Whether HPAs get the operator's metrics; None when that is not known.
    """
    already = any(_own(cache, resource, SCALED_OBJECT.name, role) is not None for role in desired.scales)
    substituted = bool(desired.substitutes) and stands_in(served=served, already=already)
    return desired.substitutes if substituted else desired.autoscalers


def autoscalers(
    chosen: Mapping[Role, Manifest],
    followed: str,
    together: Coordination,
    live: Mapping[Role, AutoscalerState | None],
    *,
    paces: Mapping[str, float],
    now: datetime,
    settle: timedelta,
) -> tuple[Child, ...]:
    """What scales each role, for the workload of the revision that it follows; none as long as none serves.

    Args:
        chosen: Their manifests, for any revision.
        followed: The revision; empty for none.
        together: What the roles may have together.
        live: The live HPA of each role.
        paces: The shortest time for a token that was seen of each revision.
        now: The time.
        settle: How long an HPA may act by bounds that it had before.
    """
    if not followed:
        return ()

    def within_limits(role: Role, hpa: Manifest) -> Manifest:
        if role not in together.ranges:
            return hpa
        limits = together.ranges[role]
        if together.budget is None:
            return bounded(hpa, limits, None)
        workload = hpa["spec"]["scaleTargetRef"]["name"]
        return bounded(hpa, limits, grant_for(live.get(role), workload, limits.maximum, now, settle))

    def remembering(role: Role, scaler: Manifest) -> Manifest:
        if role is not Role.DECODE or scaler["kind"] != AUTOSCALER.name:
            return scaler
        return paced(scaler, pace_for(live.get(role), followed, paces))

    return tuple(
        Child.of(remembering(role, within_limits(role, following(autoscaler, role, followed))))
        for role, autoscaler in chosen.items()
    )


def held_back(cache: Cache, resource: ResourceRecord, wanted: Iterable[Child]) -> set[ChildKey]:
    """Those that have to wait until the one before them is gone: two HPAs of one workload would pull at it.

    KEDA's HPA outlives its ScaledObject for a moment. It is in the cache, because KEDA copies our labels to it.
    """
    roles = {names.role_object(resource.owner.name, role): role for role in names.ENGINE_ROLES}
    return {
        child.key
        for child in wanted
        if any(cache.children.get(rival) for rival in _rivals(child.key, roles[child.key.name], resource.owner))
    }


def _rivals(key: ChildKey, role: Role, owner: Owner) -> tuple[ChildKey, ...]:
    hpa, scaled_object, kedas = _scaler_keys(owner, role)
    return (hpa,) if key == scaled_object else (scaled_object, kedas)


def _scaler_keys(owner: Owner, role: Role) -> tuple[ChildKey, ChildKey, ChildKey]:
    """Where an HPA of ours is, a ScaledObject, and the HPA that KEDA makes of that."""
    hpa = ChildKey(AUTOSCALER.name, owner.namespace, names.role_object(owner.name, role))
    kedas = hpa._replace(name=names.keda_autoscaler(owner.name, role))
    return hpa, hpa._replace(kind=SCALED_OBJECT.name), kedas


def live_autoscalers(
    cache: Cache, resource: ResourceRecord, roles: Iterable[Role]
) -> Mapping[Role, AutoscalerState | None]:
    """What the autoscaler of each of the roles thinks; None where there is none."""
    return {role: _autoscaler(cache, resource, role) for role in roles}


def whatever_scales(cache: Cache, resource: ResourceRecord) -> Mapping[Role, frozenset[ChildKey]]:
    """All that may change the number of pods of each role: also what is being deleted, and what KEDA made of it."""
    return {
        role: frozenset(key for key in _scaler_keys(resource.owner, role) if cache.children.get(key) is not None)
        for role in names.ENGINE_ROLES
    }


def _autoscaler(cache: Cache, resource: ResourceRecord, role: Role) -> AutoscalerState | None:
    record = next(_scalers(cache, resource, role), None)
    state = record.autoscaler if record is not None else None
    if record is None or state is None or record.key.kind != SCALED_OBJECT.name:
        return state
    *_, key = _scaler_keys(resource.owner, role)
    made = cache.children.get(key)
    return state.by(made.autoscaler) if made and made.autoscaler and made.owner_uid == record.uid else state


def _scalers(cache: Cache, resource: ResourceRecord, role: Role) -> Iterator[ChildRecord]:
    """Its HPA, or what KEDA makes one of."""
    records = (_own(cache, resource, kind, role) for kind in (AUTOSCALER.name, SCALED_OBJECT.name))
    return (record for record in records if record is not None)


def _own(cache: Cache, resource: ResourceRecord, kind: str, role: Role) -> ChildRecord | None:
    name = names.role_object(resource.owner.name, role)
    return live_child(cache, resource, ChildKey(kind, resource.owner.namespace, name))


def _key(owner: Owner, role: Role, revision: str) -> ChildKey:
    name = names.engine_workload(owner.name, role, revision)
    return ChildKey(names.WORKLOAD_KINDS[role], owner.namespace, name)


def _record(cache: Cache, resource: ResourceRecord, role: Role, revision: str) -> ChildRecord | None:
    return live_child(cache, resource, _key(resource.owner, role, revision)) if revision else None


def live_child(cache: Cache, resource: ResourceRecord, key: ChildKey) -> ChildRecord | None:
    """A child of this very resource, unless it is about to go."""
    record = cache.children.get(key)
    return record if record is not None and record.owner_uid == resource.uid and not record.deleting else None


def _count(record: ChildRecord | None) -> int:
    return record.workload.desired if record is not None and record.workload is not None else 0
