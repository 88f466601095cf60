"""Which P/D revisions may go: the decision behind blue/green roll-outs.

P and D workloads carry their revision in their names; the router Deployment's pod template selects one revision, and a
router pod is ready only while a P and a D pod of that revision are. So the router's own rolling update (maxUnavailable
0) is the traffic switch, and all that is left to decide here is when an old pair serves nobody any more.

The decision uses only what the cluster holds, so it may be taken again after a crash at any point. When in doubt it
keeps: an old pair that lives a minute too long costs devices, one that goes a second too early costs requests.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pdinference.api.names import Role
from pdinference.planning.observed import PodSummary, WorkloadState


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Outcome of `plan_rollout`.

    Attributes:
        serving: Revision that requests go to, for `status.servingRevision`; empty while none ever did.
        complete: Whether every router pod talks to the target revision.
        keep: P/D revisions that must stay; None means that it is not known which one serves, so all stay.
    """

    serving: str
    complete: bool
    keep: frozenset[str] | None

    def may_be_deleted(self, revision: str) -> bool:
        """Whether the workloads of this revision serve nobody."""
        return self.keep is not None and revision not in self.keep


def plan_rollout(
    *, target: str, serving: str, router: WorkloadState | None, pods: Iterable[PodSummary], recreate: bool = False
) -> RolloutPlan:
    """Decide which revisions stay.

    Args:
        target: The revision that the spec asks for.
        serving: `status.servingRevision` as last written; only a hint, it may lag behind or be empty.
        router: The live router Deployment.
        pods: The live pods; those of the router tell which revisions requests may still go to.
        recreate: Whether old pairs go at once (`spec.rollout.strategy: Recreate`).
    """
    complete = router is not None and router.revision == target and router.complete and router.desired > 0
    routers = [pod for pod in pods if pod.role is Role.ROUTER and not pod.gone]
    routed = {pod.revision for pod in routers}
    if complete:
        serving = target
    elif serving not in routed and len(others := {pod.revision for pod in routers if pod.ready} - {target}) == 1:
        (serving,) = others  # a roll-out may have ended while no operator ran, and the next one has begun
    if recreate:
        keep: frozenset[str] | None = frozenset({target})
    elif complete or _nobody_routes(router, routed):
        keep = frozenset({target, *routed})
    elif serving:
        keep = frozenset({target, serving, *routed})
    elif router is not None and router.observed and router.revision == target:
        keep = frozenset({target, *_answering(routers)})
    else:
        keep = None
    return RolloutPlan(serving=serving, complete=complete, keep=keep)


def _nobody_routes(router: WorkloadState | None, routed: set[str]) -> bool:
    """The router was scaled to zero and its last pod is gone: no revision serves, whatever the status says."""
    return router is not None and router.desired == 0 and router.complete and not routed


def _answering(routers: Iterable[PodSummary]) -> set[str]:
    """Revisions of router pods that answer requests now, or did until they were told to go.

    Before any revision ever served, this alone decides: a first revision that never got ready must be freed by its
    correction, which may need the very devices that it holds.
    """
    return {pod.revision for pod in routers if pod.ready or pod.terminating}
