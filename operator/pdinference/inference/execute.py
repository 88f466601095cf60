"""Carries out a plan: the only place that writes the children of a PDInference."""

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
    """What became of a plan.

    Attributes:
        failures: What could not be written, the lasting ones first.
        written: The children that were written, as the API server answered.
        waiting: Whether something has to wait for an object that goes away, or for the next attempt.
        retry_after: Seconds that the API server asked to wait.
        wrote: Whether anything was written.
    """

    failures: tuple[Failure, ...] = ()
    written: dict[ChildKey, ChildRecord] = field(default_factory=dict)
    waiting: bool = False
    retry_after: float = 0.0
    wrote: bool = False


class Executor:
    """Carries out plans; each write may be the last one before the process ends."""

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
        """Write what the plan says, in an order that loses no request: what serves is deleted last.

        Args:
            snapshot: What the plan was made of.
            plan: The plan.
            rendered: Renders all children; called when some have to be applied.

        Raises:
            InvalidSpecError: The spec cannot be rendered.
            BusyError: Others are rendered.
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
        if plan.remember:  # after the children, which it must not delay
            remembered, forgotten = await self._history.remember(snapshot.resource)
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
