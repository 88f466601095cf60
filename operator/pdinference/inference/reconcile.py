"""A reconcile of a PDInference in four calls: snapshot, decide, execute, status.

A reconcile can be interrupted at any point and repeated, because every decision follows from the state in the cluster.
If the resource is deleted while its children are applied, their owner reference names a uid that no longer exists, and
Kubernetes' garbage collector deletes them.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.conditions import INVALID, PAUSED
from pdinference.cluster.cache import Cache
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import Owner
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.state.records import ResourceRecord
from pdinference.controller.metrics import Metrics
from pdinference.controller.results import Result
from pdinference.controller.status_writer import Reporter, status_of
from pdinference.examination.desired import InvalidSpecError
from pdinference.examination.effective_spec import EffectiveSpecs, PausedError, examine_again_after
from pdinference.inference.decide import decide
from pdinference.inference.execute import Executor
from pdinference.inference.plan import Plan
from pdinference.inference.snapshotter import Snapshotter
from pdinference.inference.status import loads, status
from pdinference.isolation.calls import BusyError
from pdinference.planning.status import due, due_limit, left_alone_status

_LEFT_ALONE = "nothing was changed and running pods continue"
_NOT_EXECUTED = "the stored resource is not valid"
"""Why a pod is not evicted while its spec cannot be rendered."""
_LOG = logging.getLogger(__name__)
_LOOK_AFTER_WRITES_S = 0.1
"""Watch events of the operator's own writes are ignored, so the next decision is made after this time."""
_LATE_S = 0.1
"""Added to a deadline, so that it has certainly passed at the next decision."""


class Reconciler:
    """Brings the children and the status of a PDInference to its spec."""

    def __init__(
        self,
        *,
        cache: Cache,
        snapshotter: Snapshotter,
        executor: Executor,
        reporter: Reporter,
        metrics: Metrics,
        specs: EffectiveSpecs,
    ) -> None:
        self._cache = cache
        self._snapshotter = snapshotter
        self._executor = executor
        self._reporter = reporter
        self._metrics = metrics
        self._specs = specs

    async def reconcile(self, owner: Owner) -> Result:
        """Reconcile one resource."""
        resource = self._cache.resources.get(owner)
        if resource is None or resource.deleting:
            self._specs.forget(owner)
            self._reporter.forget(owner)
            return Result()
        try:
            spec = await self._specs.find(resource)
        except InvalidSpecError as error:
            return await self._leave_alone(resource, error)
        except BusyError:
            return Result(retry=True)
        except ApiError as error:
            self._metrics.errors.labels(error.reason).inc()
            _LOG.warning("The last valid spec of %s cannot be read: %s", owner, error)
            return Result(retry=True, retry_after=error.retry_after or 0.0)
        snapshot = self._snapshotter.take(resource, spec)
        plan = decide(snapshot)
        try:
            executed = await self._executor.execute(snapshot, plan)
            refusal = await self._executor.evict(snapshot, plan)
        except InvalidSpecError as error:  # the spec is valid, but this examination did not complete
            spec = replace(
                spec, invalid=error.with_consequence(_LEFT_ALONE), examine_again_after=examine_again_after(error)
            )
            snapshot, executed, refusal = replace(snapshot, spec=spec), Outcome(), _NOT_EXECUTED
        except BusyError:
            return Result(retry=True)
        if spec.invalid:
            self._metrics.errors.labels(INVALID).inc()
        after = self._snapshotter.after(snapshot, executed.applied)
        fresh = status(after, plan, executed.failures, repaired=plan.repair.after(refusal))
        written = await self._reporter.report(resource, fresh, loads=loads(snapshot, plan))
        deadline = due(fresh, spec.desired.progress_deadline)
        has_new_facts = _facts(fresh) != _facts(snapshot.previous)  # the spec is examined again with these
        moments = (
            spec.examine_again_after,
            _seconds(snapshot.now, deadline),
            _ahead(snapshot.now, due_limit(fresh)),
            _LOOK_AFTER_WRITES_S if has_new_facts else None,
        )
        return _result(plan, executed, written=written, moments=moments)

    async def _leave_alone(self, resource: ResourceRecord, error: InvalidSpecError) -> Result:
        """No valid spec is known: change nothing but the status."""
        reason = PAUSED if isinstance(error, PausedError) else INVALID
        if reason == INVALID:
            self._metrics.errors.labels(INVALID).inc()
        fresh = left_alone_status(
            error.with_consequence(_LEFT_ALONE),
            error.memory,
            generation=resource.generation,
            previous=status_of(resource),
            now=self._snapshotter.now(),
            reason=reason,
        )
        written = await self._reporter.report(resource, fresh)
        return Result(retry=not written, requeue_after=examine_again_after(error))


def _facts(status_: Status) -> object:
    return status_.model.facts if status_.model is not None else None


def _seconds(now: datetime, moment: datetime | None) -> float | None:
    return None if moment is None else (moment - now).total_seconds() + _LATE_S


def _ahead(now: datetime, moment: datetime | None) -> float | None:
    """Seconds until a moment; None if it has passed, so that the next change decides."""
    seconds = _seconds(now, moment)
    return seconds if seconds is not None and seconds > 0 else None


def _result(plan: Plan, executed: Outcome, *, written: bool, moments: Iterable[float | None]) -> Result:
    moments = (
        *moments,
        plan.requeue_after,
        plan.repair.again_after,
        _LOOK_AFTER_WRITES_S if executed.applied else None,
    )
    return Result(
        retry=bool(executed.failures or executed.waiting or not written),
        retry_after=executed.retry_after or 0.0,
        requeue_after=min((seconds for seconds in moments if seconds is not None), default=None),
    )
