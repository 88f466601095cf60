"""Blue/green roll-outs: which revision serves, and which revisions may be deleted.

The names of P and D workloads contain their revision. The router Deployment's pod template selects one revision, and a
router pod is ready only while a P and a D pod of that revision are ready. So the router's rolling update
(maxUnavailable 0) moves the traffic. What remains to decide is when an old revision no longer serves requests.

The decision uses only the state in the cluster, so it can be repeated after a crash. In doubt a revision is kept: kept
too long it costs devices, deleted too early it costs requests.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pdinference.api.names import Role
from pdinference.planning.observed import PodSummary, WorkloadState


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Outcome of `plan_rollout`.

    Attributes:
        serving: The revision that requests go to, for `status.servingRevision`; empty before the first one serves.
        complete: Whether every router pod sends requests to the target revision.
        keep: Revisions that must not be deleted; None when the serving revision is unknown, so that all are kept.
    """

    serving: str
    complete: bool
    keep: frozenset[str] | None

    def may_be_deleted(self, revision: str) -> bool:
        """Whether no requests can reach the workloads of this revision."""
        return self.keep is not None and revision not in self.keep


def plan_rollout(
    *, target: str, serving: str, router: WorkloadState | None, pods: Iterable[PodSummary], recreate: bool = False
) -> RolloutPlan:
    """Decide which revision serves and which revisions are kept.

    Args:
        target: The revision of the spec.
        serving: `status.servingRevision` as last written; a hint that may be outdated or empty.
        router: The live router Deployment.
        pods: The live pods; router pods show which revisions requests may still go to.
        recreate: Whether old revisions are deleted at once (`spec.rollout.strategy: Recreate`).
    """
    complete = router is not None and router.revision == target and router.complete and router.desired > 0
    routers = [pod for pod in pods if pod.role is Role.ROUTER and not pod.gone]
    routed = {pod.revision for pod in routers}
    if complete:
        serving = target
    elif serving not in routed and len(others := {pod.revision for pod in routers if pod.ready} - {target}) == 1:
        (serving,) = others  # a roll-out ended while no operator ran, and the next one has begun
    if recreate:
        keep: frozenset[str] | None = frozenset({target})
    elif complete or _routes_nothing(router, routed):
        keep = frozenset({target, *routed})
    elif serving:
        keep = frozenset({target, serving, *routed})
    elif router is not None and router.observed and router.revision == target:
        keep = frozenset({target, *_answering(routers)})
    else:
        keep = None
    return RolloutPlan(serving=serving, complete=complete, keep=keep)


def _routes_nothing(router: WorkloadState | None, routed: set[str]) -> bool:
    """Whether the router is scaled to zero and its last pod is gone, so that no revision serves."""
    return router is not None and router.desired == 0 and router.complete and not routed


def _answering(routers: Iterable[PodSummary]) -> set[str]:
    """Revisions of router pods that are ready, or are terminating and may have been ready.

    Before the first revision serves, only these are kept: the correction of a first revision that never became
    ready may need its devices.
    """
    return {pod.revision for pod in routers if pod.ready or pod.terminating}
