"""A resource whose stored spec cannot be read: what its status is made of."""

from pdinference.api.names import Role
from pdinference.cluster.cache import Cache
from pdinference.cluster.records import ResourceRecord
from pdinference.controller.report import status_of
from pdinference.planning.memory import MemoryVerdict
from pdinference.planning.observed import WorkloadState
from pdinference.planning.rollout import plan_rollout
from pdinference.planning.status import Situation


def situation_of_unreadable(cache: Cache, resource: ResourceRecord, *, memory: MemoryVerdict) -> Situation:
    """What is there, of the revision that was asked for last."""
    before = status_of(resource)
    workloads = _workloads(cache, resource, before.revision)
    pods = cache.pods_of(resource.owner)
    return Situation(
        namespace=resource.owner.namespace,
        name=resource.owner.name,
        generation=resource.generation,
        port=0,
        target=before.revision,
        desired={role: workload.desired for role, workload in workloads.items()},
        rollout=plan_rollout(
            target=before.revision, serving=before.serving_revision, router=workloads.get(Role.ROUTER), pods=pods
        ),
        workloads=workloads,
        pods=pods,
        memory=memory,
        holds=True,  # maybe: nobody can read whether requests wait in router pods
    )


def _workloads(cache: Cache, resource: ResourceRecord, revision: str) -> dict[Role, WorkloadState]:
    records = (record for record in cache.children_of(resource.owner) if record.owner_uid == resource.uid)
    states = (record.workload for record in records if record.workload is not None)
    return {
        state.role: state
        for state in states
        if state.node_rank == 0 and (state.revision == revision or state.role is Role.ROUTER)
    }
