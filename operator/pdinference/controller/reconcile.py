"""One reconcile: observe, plan, render, apply, prune, report.

It may be interrupted at any point and started again: everything it decides follows from what the cluster holds. If the
resource is deleted while its children are being applied, they carry an owner reference to a uid that no longer exists,
and Kubernetes' garbage collector removes them; nothing here has to.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.apply import Applier, Parent
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import DEPLOYMENT, JOB, STATEFUL_SET, WORKLOADS, ChildKey, Owner
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.prune import prune
from pdinference.cluster.records import ChildRecord, ResourceRecord
from pdinference.controller.desired import Desired, InvalidSpecError, compile_desired
from pdinference.controller.metrics import Metrics
from pdinference.controller.report import Reporter, status_of
from pdinference.controller.results import Result, count_writes
from pdinference.controller.scaling import (
    asleep_now,
    autoscalers,
    chosen_autoscalers,
    coordinated,
    followed_revision,
    held_back,
    live_autoscalers,
    trailing_counts,
    wanted_counts,
)
from pdinference.controller.sleeping import seconds_to_sleep, sleeps_now
from pdinference.manifests import RenderSettings
from pdinference.planning.model import ModelView
from pdinference.planning.observed import Failure, WorkloadState
from pdinference.planning.rollout import RolloutPlan, plan_rollout
from pdinference.planning.scaling.condition import Measured
from pdinference.planning.scaling.coordination import SETTLE, Coordination
from pdinference.planning.scaling.replicas import WantedCount
from pdinference.planning.scaling.sleep import NO_PODS, Activity
from pdinference.planning.status import Situation, build_status, invalid_status

_OF_PODS_THAT_SERVE = frozenset({STATEFUL_SET.name, DEPLOYMENT.name})


class Reconciler:
    """Makes the children and the status of a resource what its spec asks for."""

    def __init__(
        self,
        *,
        api: ApiServer,
        cache: Cache,
        applier: Applier,
        reporter: Reporter,
        metrics: Metrics,
        settings: RenderSettings,
        measured: Callable[[Owner], Measured] = lambda _: Measured(),
        settle: timedelta = SETTLE,
        activity: Callable[[Owner], Activity | None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._cache = cache
        self._applier = applier
        self._reporter = reporter
        self._metrics = metrics
        self._settings = settings
        self._measured = measured
        self._settle = settle
        self._activity = activity
        self._now = now
        self._desired: dict[Owner, Desired] = {}

    async def reconcile(self, owner: Owner) -> Result:
        """Bring one resource closer to what it asks for."""
        resource = self._cache.resources.get(owner)
        if resource is None or resource.deleting:
            self._desired.pop(owner, None)
            self._reporter.forget(owner)
            return Result()
        try:
            desired, applied = await self._apply(resource)
        except InvalidSpecError as error:
            return await self._report_invalid(resource, error)
        plan = self._plan(resource, desired)
        followed = followed_revision(self._cache, resource, desired, plan)
        scaled, scalers = await self._scale(resource, desired, followed)
        recounted = await self._applier.recount(trailing_counts(self._cache, resource, desired, followed))
        wanted = desired.fingerprints.keys() | scalers
        pruned = await prune(self._api, self._unwanted(resource, wanted, plan))
        outcomes = (applied, scaled, recounted, pruned)
        count_writes(self._metrics, applied, scaled, recounted, pruned=pruned)
        found = (failure for outcome in outcomes for failure in outcome.failures)
        failures = tuple(sorted(found, key=lambda f: (f.transient, f.kind, f.name)))
        written = await self._report(resource, desired, plan, failures)
        waits = bool(failures or any(outcome.waiting for outcome in outcomes) or not written)
        looks = (
            self._seconds_to(self._together(resource, desired)),
            seconds_to_sleep(self._cache, resource, desired, self._activity(owner)),
        )
        return Result(
            retry=waits,
            at_least=max(outcome.retry_after or 0.0 for outcome in outcomes),
            again_after=min((seconds for seconds in looks if seconds is not None), default=None),
        )

    async def _apply(self, resource: ResourceRecord) -> tuple[Desired, Outcome]:
        """Render, unless it is known that nothing would be applied, and apply."""
        parent = Parent(resource.owner, resource.uid)
        known = self._desired.get(resource.owner)
        if (
            known is not None
            and known.is_of(resource)
            and self._applier.in_order(*self._wanted(known, resource), parent)
        ):
            return known, Outcome()
        desired, children = compile_desired(resource, self._settings)
        self._desired[resource.owner] = desired
        due, counts = self._wanted(desired, resource)
        return desired, await self._applier.apply((c.counted(counts) for c in children if c.key in due), parent)

    async def _scale(
        self, resource: ResourceRecord, desired: Desired, followed: str
    ) -> tuple[Outcome, Collection[ChildKey]]:
        """Apply what scales the roles; the keys of all that should exist come back too."""
        if self._sleeps(resource, desired):
            # Nothing scales a pair that sleeps: an HPA would not, but others start it again by themselves (KEDA).
            return Outcome(), ()
        chosen = chosen_autoscalers(self._cache, resource, desired, served=self._measured(resource.owner).served)
        together = self._together(resource, desired)
        live = live_autoscalers(self._cache, resource, desired)
        wanted = autoscalers(chosen, followed, together, live, now=self._now(), settle=self._settle)
        held = held_back(self._cache, resource, wanted)
        outcome = await self._applier.apply(
            (child for child in wanted if child.key not in held), Parent(resource.owner, resource.uid)
        )
        outcome.waiting.extend(held)
        return outcome, {child.key for child in wanted}

    def _wanted(
        self, desired: Desired, resource: ResourceRecord
    ) -> tuple[Mapping[ChildKey, str], dict[ChildKey, WantedCount]]:
        """The children that may be applied now, and the pods of those whose manifests do not say how many."""
        followed = followed_revision(self._cache, resource, desired, self._plan(resource, desired))
        together = self._together(resource, desired)
        counts = wanted_counts(self._cache, resource, desired, followed, together)
        if self._sleeps(resource, desired):
            counts = dict.fromkeys(counts, NO_PODS)
        return self._due(desired, resource, together), counts

    def _due(self, desired: Desired, resource: ResourceRecord, together: Coordination) -> Mapping[ChildKey, str]:
        """What may be applied now: P and D pods are not created before their model is there, and room for them."""
        if not together.held and not self._awaits_model(desired, resource):
            return desired.fingerprints
        router = _router_key(resource.owner)
        return {
            key: fingerprint
            for key, fingerprint in desired.fingerprints.items()
            if key.kind not in _OF_PODS_THAT_SERVE or key == router or self._cache.children.get(key) is not None
        }

    def _awaits_model(self, desired: Desired, resource: ResourceRecord) -> bool:
        model = self._model(desired, resource)
        return model is not None and model.awaited and not model.done

    def _model(self, desired: Desired, resource: ResourceRecord) -> ModelView | None:
        if desired.model is None:
            return None
        record = self._cache.children.get(ChildKey(JOB.name, resource.owner.namespace, desired.model.job))
        job = record.job if record is not None and record.owner_uid == resource.uid else None
        return ModelView(desired.model.source, desired.model.what, desired.model.awaited, job)

    def _together(self, resource: ResourceRecord, desired: Desired) -> Coordination:
        followed = followed_revision(self._cache, resource, desired, self._plan(resource, desired))
        return coordinated(self._cache, resource, desired, followed, self._now())

    def _seconds_to(self, together: Coordination) -> float | None:
        """When HPAs have forgotten earlier maximums, others may get what they had."""
        return None if together.settled_at is None else (together.settled_at - self._now()).total_seconds() + 0.1

    def _sleeps(self, resource: ResourceRecord, desired: Desired) -> bool:
        activity = self._activity(resource.owner)
        return sleeps_now(self._cache, resource, desired, self._router(resource), activity)

    def _plan(self, resource: ResourceRecord, desired: Desired) -> RolloutPlan:
        return plan_rollout(
            target=desired.revision,
            serving=status_of(resource).serving_revision,
            router=self._router(resource),
            pods=self._cache.pods_of(resource.owner),
            # Devices that nothing is ready to take over go on serving.
            recreate=desired.recreate and not self._awaits_model(desired, resource),
        )

    def _unwanted(
        self, resource: ResourceRecord, wanted: Collection[ChildKey], plan: RolloutPlan
    ) -> Iterable[ChildRecord]:
        """Children of ours that are no longer rendered, less old P/D pairs that may still serve and what they need."""
        for child in self._cache.children_of(resource.owner):
            if child.owner_uid != resource.uid or child.key in wanted:
                continue
            if child.pair and not plan.may_go(child.pair):
                continue
            yield child

    async def _report(
        self, resource: ResourceRecord, desired: Desired, plan: RolloutPlan, failures: tuple[Failure, ...]
    ) -> bool:
        situation = Situation(
            namespace=resource.owner.namespace,
            name=resource.owner.name,
            generation=resource.generation,
            port=desired.port,
            target=desired.revision,
            desired=desired.replicas,
            rollout=plan,
            workloads=self._workloads(resource, desired),
            autoscalers=live_autoscalers(self._cache, resource, desired),
            measured=self._measured(resource.owner),
            together=self._together(resource, desired),
            scaled=bool(followed_revision(self._cache, resource, desired, plan)),
            pods=self._cache.pods_of(resource.owner),
            failures=failures,
            memory=desired.memory,
            model=self._model(desired, resource),
            holds=desired.sleeps_after is not None,
            heard=self._activity(resource.owner) is not None,
            asleep=self._sleeps(resource, desired) and asleep_now(self._cache, resource, desired),
        )
        status = build_status(situation, previous=status_of(resource), now=self._now())
        return await self._reporter.report(resource, status)

    async def _report_invalid(self, resource: ResourceRecord, error: InvalidSpecError) -> Result:
        self._metrics.errors.labels("InvalidSpec").inc()
        status = invalid_status(
            resource.generation,
            str(error),
            router=self._router(resource),
            previous=status_of(resource),
            now=self._now(),
            memory=error.memory,
        )
        return Result(retry=not await self._reporter.report(resource, status))

    def _workloads(self, resource: ResourceRecord, desired: Desired) -> dict[Role, WorkloadState]:
        records = (self._cache.children.get(key) for key in desired.fingerprints if key.kind in WORKLOADS)
        states = (record.workload for record in records if record is not None and record.owner_uid == resource.uid)
        return {state.role: state for state in states if state is not None and state.node_rank == 0}

    def _router(self, resource: ResourceRecord) -> WorkloadState | None:
        record = self._cache.children.get(_router_key(resource.owner))
        return record.workload if record is not None and record.owner_uid == resource.uid else None


def _router_key(owner: Owner) -> ChildKey:
    return ChildKey(DEPLOYMENT.name, owner.namespace, names.role_object(owner.name, Role.ROUTER))
