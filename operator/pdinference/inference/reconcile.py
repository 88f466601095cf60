"""One reconcile: observe, plan, render, apply, prune, report.

It may be interrupted at any point and started again: everything it decides follows from what the cluster holds. If the
resource is deleted while its children are being applied, they carry an owner reference to a uid that no longer exists,
and Kubernetes' garbage collector removes them; nothing here has to.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from pdinference.api.names import Role
from pdinference.cluster.apply import Applier, Parent
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import DEPLOYMENT, STATEFUL_SET, ChildKey, Owner
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.prune import prune
from pdinference.cluster.records import ChildRecord, ResourceRecord
from pdinference.controller.metrics import Metrics
from pdinference.controller.report import Reporter, status_of
from pdinference.controller.results import Result, count_writes
from pdinference.examination.client import AGAIN_AFTER_S, ExaminationEndedError, Examinations
from pdinference.examination.desired import Desired, InvalidSpecError
from pdinference.inference.observing import (
    Observation,
    live_workloads,
    observe,
    router_key,
)
from pdinference.inference.scaling import (
    autoscalers,
    chosen_autoscalers,
    held_back,
    trailing_counts,
    wanted_counts,
)
from pdinference.inference.sleeping import seconds_to_sleep
from pdinference.inference.unreadable import situation_of_unreadable, unfinished_instances
from pdinference.isolation.calls import BusyError
from pdinference.planning.observed import AutoscalerState, Failure
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.condition import Measured
from pdinference.planning.scaling.decision import Change, reasons, unexplained
from pdinference.planning.scaling.grants import SETTLE
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
        examinations: Examinations,
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
        self._examinations = examinations
        self._measured = measured
        self._settle = settle
        self._activity = activity
        self._now = now
        self._desired: dict[Owner, Desired] = {}
        self._changes: dict[Owner, Change] = {}

    async def reconcile(self, owner: Owner) -> Result:
        """Bring one resource closer to what it asks for."""
        resource = self._cache.resources.get(owner)
        if resource is None or resource.deleting:
            self._desired.pop(owner, None)
            self._changes.pop(owner, None)
            self._examinations.forget(owner)
            self._reporter.forget(owner)
            return Result()
        try:
            desired, seen, applied = await self._apply(resource)
        except InvalidSpecError as error:
            return await self._report_invalid(resource, error)
        except BusyError:
            return Result(retry=True)
        scaled, scalers = await self._scale(resource, desired, seen)
        recounted = await self._applier.recount(trailing_counts(self._cache, resource, desired, seen.followed))
        wanted = desired.fingerprints.keys() | scalers
        pruned = await prune(self._api, self._unwanted(resource, wanted, seen.plan))
        outcomes = (applied, scaled, recounted, pruned)
        count_writes(self._metrics, applied, scaled, recounted, pruned=pruned)
        found = (failure for outcome in outcomes for failure in outcome.failures)
        failures = tuple(sorted(found, key=lambda f: (f.transient, f.kind, f.name)))
        after = self._observe(resource, desired, seen.plan)
        reason_due = self._seconds_to(self._reason_due(resource, desired.revision, after.autoscalers))
        written = reason_due is not None or await self._report(resource, desired, after, failures)
        waits = bool(failures or any(outcome.waiting for outcome in outcomes) or not written)
        looks = (
            reason_due,
            self._seconds_to(after.together.settled_at),
            seconds_to_sleep(desired, after.activity, asleep=after.empty),
        )
        return Result(
            retry=waits,
            at_least=max(outcome.retry_after or 0.0 for outcome in outcomes),
            again_after=min((seconds for seconds in looks if seconds is not None), default=None),
        )

    async def _apply(self, resource: ResourceRecord) -> tuple[Desired, Observation, Outcome]:
        """Render, unless it is known that nothing would be applied, and apply; how things are then comes back too."""
        parent = Parent(resource.owner, resource.uid)
        known = self._desired.get(resource.owner)
        if known is not None and known.is_of(resource):
            seen = self._observe(resource, known)
            if self._applier.in_order(self._due(resource, known, seen), self._counts(resource, known, seen), parent):
                return known, seen, Outcome()
        desired, children = await self._examinations.compiled(resource)
        self._desired[resource.owner] = desired
        seen = self._observe(resource, desired)
        due, counts = self._due(resource, desired, seen), self._counts(resource, desired, seen)
        outcome = await self._applier.apply((c.counted(counts) for c in children if c.key in due), parent)
        return desired, self._observe(resource, desired), outcome

    async def _scale(
        self, resource: ResourceRecord, desired: Desired, seen: Observation
    ) -> tuple[Outcome, Collection[ChildKey]]:
        """Apply what scales the roles; the keys of all that should exist come back too."""
        if seen.undecided:
            # One that wakes, and waits for GPUs maybe, has HPAs already; one that sleeps has none.
            return Outcome(), frozenset[ChildKey]().union(*seen.scalers.values())
        if seen.sleeps:
            # Nothing scales a pair that sleeps: an HPA would not, but others start it again by themselves (KEDA).
            return Outcome(), ()
        measured = self._measured(resource.owner)
        wanted = autoscalers(
            chosen_autoscalers(self._cache, resource, desired, served=measured.served),
            seen.followed,
            seen.together,
            seen.autoscalers,
            paces=measured.paces,
            now=self._now(),
            settle=self._settle,
        )
        held = held_back(self._cache, resource, wanted)
        outcome = await self._applier.apply(
            (child for child in wanted if child.key not in held), Parent(resource.owner, resource.uid)
        )
        outcome.waiting.extend(held)
        return outcome, {child.key for child in wanted}

    def _observe(self, resource: ResourceRecord, desired: Desired, plan: RolloutPlan | None = None) -> Observation:
        activity = self._activity(resource.owner)
        return observe(self._cache, resource, desired, activity=activity, now=self._now(), plan=plan)

    def _due(self, resource: ResourceRecord, desired: Desired, seen: Observation) -> Mapping[ChildKey, str]:
        """What may be applied now: P and D pods are not created before their model is there, and room for them."""
        if not seen.together.held and not seen.awaits_model:
            return desired.fingerprints
        router = router_key(resource.owner)
        return {
            key: fingerprint
            for key, fingerprint in desired.fingerprints.items()
            if key.kind not in _OF_PODS_THAT_SERVE or key == router or self._cache.children.get(key) is not None
        }

    def _counts(self, resource: ResourceRecord, desired: Desired, seen: Observation) -> dict[ChildKey, WantedCount]:
        """How many pods those have whose manifests do not say it."""
        counts = wanted_counts(self._cache, resource, desired, seen.followed, seen.together)
        return dict.fromkeys(counts, NO_PODS) if seen.pods_go else counts

    def _seconds_to(self, moment: datetime | None) -> float | None:
        return None if moment is None else (moment - self._now()).total_seconds() + 0.1

    def _reason_due(
        self, resource: ResourceRecord, revision: str, hpas: Mapping[Role, AutoscalerState | None]
    ) -> datetime | None:
        """Until when the status waits, so that it can say why an HPA changed a number of pods; None for no more."""
        told = status_of(resource).roles
        counts = unexplained(
            hpas,
            live_workloads(self._cache, resource, revision),
            {Role.PARAMETER: told.parameter.desired, Role.DECODE: told.decode.desired},
        )
        known = self._changes.pop(resource.owner, None)
        if not counts:
            return None
        change = known if known is not None and known.counts == counts else Change(counts, self._now())
        self._changes[resource.owner] = change
        return change.waits_until(self._now())

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
        self, resource: ResourceRecord, desired: Desired, seen: Observation, failures: tuple[Failure, ...]
    ) -> bool:
        workloads = live_workloads(self._cache, resource, desired.revision)
        situation = Situation(
            namespace=resource.owner.namespace,
            name=resource.owner.name,
            generation=resource.generation,
            port=desired.port,
            target=desired.revision,
            desired=desired.replicas,
            rollout=seen.plan,
            workloads=workloads,
            autoscalers=seen.autoscalers,
            measured=self._measured(resource.owner),
            together=seen.together,
            scaled=bool(seen.followed),
            pods=self._cache.pods_of(resource.owner),
            failures=failures,
            memory=desired.memory,
            pinned=desired.pinned,
            model=seen.model,
            looks=desired.looks,
            holds=desired.sleeps_after is not None,
            heard=seen.activity is not None,
            asleep=seen.asleep,
            dozes=seen.sleeps and not seen.empty,
            lingering=seen.lingering,
        )
        status = build_status(situation, previous=status_of(resource), now=self._now())
        return await self._reporter.report(resource, status, loads=reasons(seen.autoscalers, workloads))

    async def _report_invalid(self, resource: ResourceRecord, error: InvalidSpecError) -> Result:
        """Leave everything alone, but keep whole the instances whose first nodes an HPA goes on scaling."""
        self._metrics.errors.labels("InvalidSpec").inc()
        recounted = await self._applier.recount(unfinished_instances(self._cache, resource))
        count_writes(self._metrics, recounted)
        situation = situation_of_unreadable(
            self._cache, resource, memory=error.memory, measured=self._measured(resource.owner)
        )
        reason_due = self._seconds_to(self._reason_due(resource, situation.target, situation.autoscalers))
        if reason_due is not None:
            return Result(retry=bool(recounted.failures), again_after=reason_due)
        status = invalid_status(situation, str(error), previous=status_of(resource), now=self._now())
        loads = reasons(situation.autoscalers, situation.workloads)
        written = await self._reporter.report(resource, status, loads=loads)
        return Result(
            retry=bool(recounted.failures) or not written,
            again_after=AGAIN_AFTER_S if isinstance(error, ExaminationEndedError) else None,
        )
