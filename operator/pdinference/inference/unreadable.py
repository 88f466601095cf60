"""A resource whose stored spec cannot be read: what goes on without it, and what that needs."""

from collections.abc import Mapping
from dataclasses import replace

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import AUTOSCALER, ChildKey
from pdinference.cluster.records import ResourceRecord
from pdinference.controller.report import status_of
from pdinference.inference.observing import live_router, live_workloads
from pdinference.inference.scaling import live_autoscalers, live_child, whole_instances
from pdinference.planning.memory import MemoryVerdict
from pdinference.planning.observed import AutoscalerState
from pdinference.planning.rollout import plan_rollout
from pdinference.planning.scaling.condition import Measured
from pdinference.planning.scaling.replicas import WantedCount
from pdinference.planning.status import Situation


def scalers_at_work(cache: Cache, resource: ResourceRecord) -> Mapping[Role, AutoscalerState]:
    """What scales each role that anything scales, as it was told when the spec could be read."""
    hpas = live_autoscalers(cache, resource, names.ENGINE_ROLES)
    found = {role: hpa or _by_keda_alone(cache, resource, role) for role, hpa in hpas.items()}
    return {role: hpa for role, hpa in found.items() if hpa is not None}


def _by_keda_alone(cache: Cache, resource: ResourceRecord, role: Role) -> AutoscalerState | None:
    """KEDA's HPA, where the operator is no longer installed to use KEDA, and so does not see the ScaledObject."""
    name = names.keda_autoscaler(resource.owner.name, role)
    record = cache.children.get(ChildKey(AUTOSCALER.name, resource.owner.namespace, name))
    hpa = record.autoscaler if record is not None and record.owner == resource.owner and not record.deleting else None
    return None if hpa is None else replace(hpa, loads=())  # what they are called, only the ScaledObject says


def unfinished_instances(cache: Cache, resource: ResourceRecord) -> dict[ChildKey, WantedCount]:
    """What is to change in the further nodes of P instances, whose first nodes something goes on scaling."""
    scaler = scalers_at_work(cache, resource).get(Role.PARAMETER)
    if scaler is None:
        return {}
    key = ChildKey(names.WORKLOAD_KINDS[Role.PARAMETER], resource.owner.namespace, scaler.workload)
    return whole_instances(cache, resource, live_child(cache, resource, key))


def situation_of_unreadable(
    cache: Cache, resource: ResourceRecord, *, memory: MemoryVerdict, measured: Measured
) -> Situation:
    """What is there, of the revision that was asked for last."""
    before = status_of(resource)
    workloads = live_workloads(cache, resource, before.revision)
    pods = cache.pods_of(resource.owner)
    return Situation(
        namespace=resource.owner.namespace,
        name=resource.owner.name,
        generation=resource.generation,
        port=0,
        target=before.revision,
        desired={role: workload.desired for role, workload in workloads.items()},
        rollout=plan_rollout(
            target=before.revision, serving=before.serving_revision, router=live_router(cache, resource), pods=pods
        ),
        workloads=workloads,
        autoscalers=scalers_at_work(cache, resource),
        pods=pods,
        measured=measured,
        memory=memory,
        holds=True,  # maybe: nobody can read whether requests wait in router pods
    )
