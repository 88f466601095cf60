"""The status of a PDInference, from one snapshot, its plan, and the result of the plan's execution.

Tests: tests/inference/test_reconcile.py, tests/inference/test_scaling.py, tests/inference/test_sources.py
"""

from collections.abc import Iterable

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.status import RepairStatus
from pdinference.inference.plan import Plan
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.answering import as_routers_see
from pdinference.planning.observed import Failure
from pdinference.planning.scaling.condition import loads_text
from pdinference.planning.status import StatusInputs, build_status


def status(
    snapshot: Snapshot, plan: Plan, failures: Iterable[Failure], *, repaired: RepairStatus | None = None
) -> Status:
    """The status to write; equal to the previous one when nothing changed.

    Args:
        snapshot: The snapshot after the execution of the plan.
        plan: The plan.
        failures: What could not be written.
        repaired: Restarts of pods whose KV transfer was broken.
    """
    return build_status(_inputs(snapshot, plan, failures, repaired), previous=snapshot.previous, now=snapshot.now)


def _inputs(snapshot: Snapshot, plan: Plan, failures: Iterable[Failure], repaired: RepairStatus | None) -> StatusInputs:
    desired = snapshot.desired
    return StatusInputs(
        namespace=snapshot.owner.namespace,
        name=snapshot.owner.name,
        generation=snapshot.resource.generation,
        paused=snapshot.resource.paused,
        withheld=snapshot.spec.withheld,
        invalid=snapshot.spec.invalid,
        url=desired.service.url,
        reachable=snapshot.has_service,
        desired=desired,
        observations=snapshot.observations,
        rollout=plan.rollout,
        allocation=plan.allocation,
        repaired=repaired,
        asleep=plan.asleep and snapshot.empty,
        failures=tuple(sorted(failures, key=lambda one: (one.transient, one.kind, one.name))),
        workloads=snapshot.leading_workloads(desired.revision),
        pods=as_routers_see(snapshot.pods, snapshot.observations.pod_faults),
        aggregated=snapshot.aggregated_revisions,
        autoscalers={role: snapshot.autoscaler(role) for role in desired.autoscaled},
        model=snapshot.model,
        route=snapshot.route,
    )


def loads(snapshot: Snapshot, plan: Plan) -> dict[Role, str]:
    """The loads on which the HPAs based the allocated counts, as text for Events."""
    found = {role: snapshot.autoscaler(role) for role in snapshot.desired.autoscaled}
    return {
        role: loads_text(hpa)
        for role, hpa in found.items()
        if hpa is not None
        and any(load.tenths is not None for load in hpa.loads)
        and hpa.desired == plan.allocation.replicas[role][snapshot.desired.revision]
    }
