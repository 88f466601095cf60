"""Whether a pod of a resource is restarted because its KV transfer is proven broken, or its engine is stuck.

Tests: tests/inference/test_repair.py
"""

from collections.abc import Mapping
from typing import Final

from pdinference.api.names import ENGINE_ROLES, PodFault, Verification
from pdinference.api.v1alpha1.conditions import NOT_ANSWERING
from pdinference.cluster.kinds import ChildKey
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.answering import as_routers_see
from pdinference.planning.observed import PodProblem, PodSummary
from pdinference.planning.repair import Repair, repair
from pdinference.planning.rollout import RolloutPlan

_SHOW_NOTHING: Final = (Verification.OFF, Verification.NOT_APPLICABLE)
"""States in which no canary ever shows what came of a restart."""


def decided_repair(snapshot: Snapshot, rollout: RolloutPlan, replicas: Mapping[ChildKey, int]) -> Repair:
    """The repair of the revision that serves; none while anything else changes its pods.

    Args:
        snapshot: The snapshot.
        rollout: Which revision serves.
        replicas: The replica count of each workload.
    """
    desired, facts, written = snapshot.desired, snapshot.observations.transfer, snapshot.previous.transfer
    if desired.transfer_path is None or not desired.repairs or facts is None or facts.revision != desired.revision:
        return Repair()
    before = written.repair if written is not None and written.revision == desired.revision else None
    seen = as_routers_see(snapshot.pods, snapshot.observations.pod_faults)
    engines = [pod for pod in seen if pod.role in ENGINE_ROLES and not pod.gone]
    leaders = [pod for pod in engines if pod.node_rank == 0 and pod.revision == desired.revision]
    stuck = [pod for pod in leaders if _is_stuck(pod)]
    others = [pod for pod in engines if pod not in stuck]
    settled = rollout.complete and rollout.serving == desired.revision and _is_settled(snapshot, others, replicas)
    return repair(
        pairs=facts.pairs,
        pods=leaders,
        stuck=stuck,
        canaries=facts.canary.state not in _SHOW_NOTHING,
        settled=settled,
        before=before,
        now=snapshot.now,
        rank_pairs=desired.transfer_path.pairs,
    )


def _is_stuck(pod: PodSummary) -> bool:
    """Whether an engine of a pod that is to stay, and that Kubernetes calls ready, takes no step any more."""
    problems = [pod.problem, *(engine.problem for engine in pod.engines)]
    return not pod.terminating and PodProblem(NOT_ANSWERING, PodFault.STUCK) in problems


def _is_settled(snapshot: Snapshot, engines: list[PodSummary], replicas: Mapping[ChildKey, int]) -> bool:
    """Whether each P and D pod is of the desired revision and ready, and there are as many as there should be."""
    desired = snapshot.desired
    for key in desired.engines:
        record = snapshot.own(key)
        workload = record.workload if record is not None else None
        if workload is None or not workload.complete or workload.desired != replicas.get(key):
            return False
    return all(
        pod.ready and not pod.terminating and pod.revision == desired.revision and all(e.ready for e in pod.engines)
        for pod in engines
    )
