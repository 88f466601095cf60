"""Executes a plan: the only module that writes the children of a PDInference.

Tests: tests/inference/test_reconcile.py, tests/inference/test_scaling.py, tests/inference/test_last_valid_spec.py
"""

from pdinference.cluster.apply import Applier, Parent
from pdinference.cluster.client import ApiServer
from pdinference.cluster.evict import evict
from pdinference.cluster.history.store import History
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.prune import prune
from pdinference.cluster.replicas import ReplicaWriter
from pdinference.controller.metrics import Metrics
from pdinference.controller.results import count_writes
from pdinference.examination.effective_spec import EffectiveSpecs
from pdinference.inference.plan import Plan
from pdinference.inference.snapshot import Snapshot


class Executor:
    """Executes plans. The process may end after any write, so each one leaves a consistent state."""

    def __init__(
        self,
        *,
        api: ApiServer,
        specs: EffectiveSpecs,
        applier: Applier,
        replicas: ReplicaWriter,
        history: History,
        metrics: Metrics,
    ) -> None:
        self._api = api
        self._specs = specs
        self._applier = applier
        self._replicas = replicas
        self._history = history
        self._metrics = metrics

    async def execute(self, snapshot: Snapshot, plan: Plan) -> Outcome:
        """Write the changes of a plan. Deletions come last, so that no request is lost.

        Args:
            snapshot: The snapshot on which the plan was decided.
            plan: The plan.

        Raises:
            InvalidSpecError: The spec cannot be rendered.
            BusyError: The isolated process is busy with other specs.
        """
        if plan.empty:
            return Outcome()
        uid = snapshot.resource.uid
        applied = await self._apply(snapshot, plan) if plan.apply else Outcome()
        counted = await self._replicas.set_replicas({**plan.scale, **plan.recommend}, uid)
        reported = await self._replicas.report(plan.report, uid)
        pruned = await prune(self._api, plan.delete)
        remembered, forgotten = Outcome(), Outcome()
        if plan.remember:  # last, so that it does not delay the children
            remembered, forgotten = await self._history.remember(snapshot.resource, served=plan.served)
        pruned.add(forgotten)
        count_writes(self._metrics, applied, counted, reported, remembered, pruned=pruned)
        executed = Outcome()
        for outcome in (applied, counted, reported, remembered, pruned):
            executed.add(outcome)
        return executed

    async def evict(self, snapshot: Snapshot, plan: Plan) -> str:
        """Evict the pod that the plan restarts, if there is one. Why that was refused; empty if it was not."""
        pod = plan.repair.evict
        return "" if pod is None else await evict(self._api, snapshot.owner.namespace, pod)

    async def _apply(self, snapshot: Snapshot, plan: Plan) -> Outcome:
        children = await self._specs.children(snapshot.spec)
        chosen = [child.scaled(plan.replicas) for child in children if child.key in plan.apply]
        return await self._applier.apply(chosen, Parent(snapshot.owner, snapshot.resource.uid))
