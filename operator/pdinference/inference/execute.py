"""Executes a plan: the only module that writes the children of a PDInference."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from pdinference.cluster.apply import Applier, Parent
from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.client import ApiServer
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import ChildKey
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.prune import prune
from pdinference.cluster.replicas import ReplicaWriter
from pdinference.cluster.state.records import ChildRecord
from pdinference.controller.metrics import Metrics
from pdinference.controller.results import count_writes
from pdinference.inference.plan import Plan
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.observed import Failure


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The result of executing a plan.

    Attributes:
        failures: The writes that failed, permanent failures first.
        written: The children that were written, as the API server returned them.
        waiting: Whether a write waits for the deletion of an object, or for the next attempt.
        retry_after: Seconds from the API server's Retry-After.
        wrote: Whether anything was written.
    """

    failures: tuple[Failure, ...] = ()
    written: dict[ChildKey, ChildRecord] = field(default_factory=dict)
    waiting: bool = False
    retry_after: float = 0.0
    wrote: bool = False


class Executor:
    """Executes plans. The process may end after any write, so each one leaves a consistent state."""

    def __init__(
        self,
        *,
        api: ApiServer,
        cache: Cache,
        applier: Applier,
        replicas: ReplicaWriter,
        history: History,
        metrics: Metrics,
    ) -> None:
        self._api = api
        self._cache = cache
        self._applier = applier
        self._replicas = replicas
        self._history = history
        self._metrics = metrics

    async def execute(
        self, snapshot: Snapshot, plan: Plan, rendered: Callable[[], Awaitable[Iterable[Child]]]
    ) -> ExecutionResult:
        """Write the changes of a plan. Deletions come last, so that no request is lost.

        Args:
            snapshot: The snapshot on which the plan was decided.
            plan: The plan.
            rendered: Renders all children; called only if some are applied.

        Raises:
            InvalidSpecError: The spec cannot be rendered.
            BusyError: The isolated process is busy with other specs.
        """
        if plan.empty:
            return ExecutionResult()
        uid = snapshot.resource.uid
        applied = Outcome()
        if plan.apply:
            children = [child.scaled(plan.replicas) for child in await rendered() if child.key in plan.apply]
            applied = await self._applier.apply(children, Parent(snapshot.owner, uid))
        counted = await self._replicas.set_replicas({**plan.scale, **plan.recommend}, uid)
        reported = await self._replicas.report(plan.report, uid)
        pruned = await prune(self._api, plan.delete)
        remembered, forgotten = Outcome(), Outcome()
        if plan.remember:  # last, so that it does not delay the children
            remembered, forgotten = await self._history.remember(snapshot.resource, served=plan.served)
        pruned.add(forgotten)
        count_writes(self._metrics, applied, counted, reported, remembered, pruned=pruned)
        return self._summary(applied, counted, reported, remembered, pruned)

    def _summary(self, *outcomes: Outcome) -> ExecutionResult:
        found = (failure for outcome in outcomes for failure in outcome.failures)
        keys = [key for outcome in outcomes for key in outcome.applied]
        records = ((key, self._cache.children.get(key)) for key in keys)
        return ExecutionResult(
            failures=tuple(sorted(found, key=lambda f: (f.transient, f.kind, f.name))),
            written={key: record for key, record in records if record is not None},
            waiting=any(outcome.waiting for outcome in outcomes),
            retry_after=max(outcome.retry_after or 0.0 for outcome in outcomes),
            wrote=bool(keys),
        )
