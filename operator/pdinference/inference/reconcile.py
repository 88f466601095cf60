"""A reconcile of a PDInference in four calls: snapshot, decide, execute, status.

It may be interrupted at any point and started again: everything it decides follows from what the cluster holds. If the
resource is deleted while its children are being applied, they carry an owner reference to a uid that no longer exists,
and Kubernetes' garbage collector removes them; nothing here has to.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.kinds import Owner
from pdinference.cluster.records import ResourceRecord
from pdinference.controller.metrics import Metrics
from pdinference.controller.report import Reporter, status_of
from pdinference.controller.results import Result
from pdinference.examination.client import AGAIN_AFTER_S, ExaminationEndedError, Examinations
from pdinference.examination.desired import Desired, InvalidSpecError
from pdinference.inference.decide import decide
from pdinference.inference.execute import Executed, Executor
from pdinference.inference.plan import Plan
from pdinference.inference.snapshot import Camera
from pdinference.inference.status import loads, status
from pdinference.inference.unreadable import situation_of_unreadable
from pdinference.isolation.calls import BusyError
from pdinference.planning.status import due, invalid_status

_LOOK_AFTER_WRITES_S = 0.1
"""The watch events of our own writes are ignored, so what follows from them is decided after this time."""
_LATE_S = 0.1
"""So much after a deadline a decision is made, so that it has passed for certain."""


class Reconciler:
    """Makes the children and the status of a resource what its spec asks for."""

    def __init__(
        self,
        *,
        cache: Cache,
        camera: Camera,
        executor: Executor,
        reporter: Reporter,
        metrics: Metrics,
        examinations: Examinations,
    ) -> None:
        self._cache = cache
        self._camera = camera
        self._executor = executor
        self._reporter = reporter
        self._metrics = metrics
        self._examinations = examinations
        self._desired: dict[Owner, Desired] = {}

    async def reconcile(self, owner: Owner) -> Result:
        """Bring one resource closer to what it asks for."""
        resource = self._cache.resources.get(owner)
        if resource is None or resource.deleting:
            self._forget(owner)
            return Result()
        try:
            desired, rendered = await self._compiled(resource)
            snapshot = self._camera.take(resource, desired)
            plan = decide(snapshot)
            executed = await self._executor.execute(snapshot, plan, rendered)
        except InvalidSpecError as error:
            return await self._report_invalid(resource, error)
        except BusyError:
            return Result(retry=True)
        fresh = status(snapshot, plan, executed)
        written = await self._reporter.report(resource, fresh, loads=loads(snapshot, plan))
        deadline = due(fresh, desired.progress_deadline)
        return _result(plan, executed, written=written, deadline=_seconds(snapshot.now, deadline))

    async def _compiled(self, resource: ResourceRecord) -> tuple[Desired, Callable[[], Awaitable[Iterable[Child]]]]:
        """What the resource asks for, and how to get its children rendered; these are too large to be kept."""
        known = self._desired.get(resource.owner)
        if known is not None and known.is_of(resource):

            async def render() -> Iterable[Child]:
                return (await self._examinations.compiled(resource))[1]

            return known, render
        desired, children = await self._examinations.compiled(resource)
        self._desired[resource.owner] = desired

        async def just_rendered() -> Iterable[Child]:
            return children

        return desired, just_rendered

    def _forget(self, owner: Owner) -> None:
        self._desired.pop(owner, None)
        self._examinations.forget(owner)
        self._reporter.forget(owner)

    async def _report_invalid(self, resource: ResourceRecord, error: InvalidSpecError) -> Result:
        """Leave everything alone, and say what is wrong."""
        self._metrics.errors.labels("InvalidSpec").inc()
        situation = situation_of_unreadable(self._cache, resource, memory=error.memory)
        fresh = invalid_status(situation, str(error), previous=status_of(resource), now=self._camera.now())
        written = await self._reporter.report(resource, fresh)
        return Result(
            retry=not written, again_after=AGAIN_AFTER_S if isinstance(error, ExaminationEndedError) else None
        )


def _seconds(now: datetime, moment: datetime | None) -> float | None:
    return None if moment is None else (moment - now).total_seconds() + _LATE_S


def _result(plan: Plan, executed: Executed, *, written: bool, deadline: float | None) -> Result:
    moments = (plan.look_again, deadline, _LOOK_AFTER_WRITES_S if executed.wrote else None)
    return Result(
        retry=bool(executed.failures or executed.waiting or not written),
        at_least=executed.retry_after,
        again_after=min((seconds for seconds in moments if seconds is not None), default=None),
    )
