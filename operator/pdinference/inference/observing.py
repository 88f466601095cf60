"""One look at what the cache holds of a PDInference: all that its reconcile goes by at that moment, worked out once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import DEPLOYMENT, JOB, ChildKey, Owner
from pdinference.cluster.records import ResourceRecord
from pdinference.controller.report import status_of
from pdinference.examination.desired import Desired
from pdinference.inference.scaling import (
    asleep_now,
    coordinated,
    followed_revision,
    live_autoscalers,
    whatever_scales,
)
from pdinference.inference.sleeping import sleeps_now
from pdinference.planning.model import ModelView
from pdinference.planning.observed import AutoscalerState, WorkloadState
from pdinference.planning.rollout import RolloutPlan, plan_rollout
from pdinference.planning.scaling.coordination import Coordination
from pdinference.planning.scaling.sleep import Activity


@dataclass(frozen=True, slots=True)
class Observation:
    """What follows from the cache as it is now.

    Attributes:
        plan: Which revisions may go.
        followed: The revision that HPAs follow; empty for none.
        autoscalers: The live HPA of each autoscaled role; None where there is none.
        together: What P and D may have together.
        model: The Job for the model; None when none is wanted.
        activity: How many requests there are; None when router pods do not tell.
        sleeps: Whether P and D are to have no pods: because nobody asks, or because they have none, and nobody knows.
        empty: Whether they may sleep, and have none.
        scalers: All that may change the number of pods of a role.
    """

    plan: RolloutPlan
    followed: str
    autoscalers: Mapping[Role, AutoscalerState | None]
    together: Coordination
    model: ModelView | None
    activity: Activity | None
    sleeps: bool
    empty: bool
    scalers: Mapping[Role, frozenset[ChildKey]]

    @property
    def undecided(self) -> bool:
        """Whether P and D have no pods, and nobody knows whether they should, as when the operator has just started."""
        return self.sleeps and self.activity is None

    @property
    def asleep(self) -> bool:
        """Whether P and D have no pods because nobody asks; a pair that waits for GPUs has its HPAs already."""
        return self.empty and self.sleeps and not (self.undecided and any(self.autoscalers.values()))

    @property
    def pods_go(self) -> bool:
        """Whether P and D are to have no pods now: what scales them goes first, or KEDA would start them again."""
        return self.sleeps and (self.empty or not any(self.scalers.values()))

    @property
    def lingering(self) -> frozenset[Role]:
        """Roles that wait until what scaled them is gone."""
        return frozenset(role for role, live in self.autoscalers.items() if live is None and self.scalers[role])

    @property
    def awaits_model(self) -> bool:
        """Whether P and D wait for their model."""
        return _awaited(self.model)


def observe(
    cache: Cache,
    resource: ResourceRecord,
    desired: Desired,
    *,
    activity: Activity | None,
    now: datetime,
    plan: RolloutPlan | None = None,
) -> Observation:
    """Look.

    Args:
        cache: What is there.
        resource: The resource.
        desired: What it asks for.
        activity: How many requests there are; None when that is not known.
        now: The time.
        plan: The plan that was acted on already, so that the status says what was done; None for a new one.
    """
    model, router = _model(cache, resource, desired), live_router(cache, resource)
    plan = plan or plan_rollout(
        target=desired.revision,
        serving=status_of(resource).serving_revision,
        router=router,
        pods=cache.pods_of(resource.owner),
        # Devices that nothing is ready to take over go on serving.
        recreate=desired.recreate and not _awaited(model),
    )
    followed = followed_revision(cache, resource, desired, plan)
    autoscalers = live_autoscalers(cache, resource, desired.scales)
    empty = asleep_now(cache, resource, desired)
    return Observation(
        plan=plan,
        followed=followed,
        autoscalers=autoscalers,
        together=coordinated(cache, resource, desired, autoscalers, followed=followed, now=now),
        model=model,
        activity=activity,
        sleeps=sleeps_now(desired, router, activity, asleep=empty),
        empty=empty,
        scalers=whatever_scales(cache, resource),
    )


def live_workloads(cache: Cache, resource: ResourceRecord, revision: str) -> dict[Role, WorkloadState]:
    """The workload of each role that serves a revision, as far as it exists."""
    records = (record for record in cache.children_of(resource.owner) if record.owner_uid == resource.uid)
    states = (record.workload for record in records if record.workload is not None)
    return {
        state.role: state
        for state in states
        if state.node_rank == 0 and (state.revision == revision or state.role is Role.ROUTER)
    }


def live_router(cache: Cache, resource: ResourceRecord) -> WorkloadState | None:
    """The router Deployment; None while there is none."""
    record = cache.children.get(router_key(resource.owner))
    return record.workload if record is not None and record.owner_uid == resource.uid else None


def router_key(owner: Owner) -> ChildKey:
    """Where the router Deployment is."""
    return ChildKey(DEPLOYMENT.name, owner.namespace, names.role_object(owner.name, Role.ROUTER))


def _model(cache: Cache, resource: ResourceRecord, desired: Desired) -> ModelView | None:
    if desired.model is None:
        return None
    record = cache.children.get(ChildKey(JOB.name, resource.owner.namespace, desired.model.job))
    job = record.job if record is not None and record.owner_uid == resource.uid else None
    return ModelView(desired.model.source, desired.model.what, desired.model.awaited, job)


def _awaited(model: ModelView | None) -> bool:
    return model is not None and model.awaited and not model.done
