"""The status of a PDInference, from one snapshot, its plan, and the result of the plan's execution."""

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Status
from pdinference.inference.execute import ExecutionResult
from pdinference.inference.plan import Plan
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.answering import as_routers_see
from pdinference.planning.scaling.condition import loads_text
from pdinference.planning.status import StatusInputs, build_status


def status(snapshot: Snapshot, plan: Plan, executed: ExecutionResult) -> Status:
    """The status to write; equal to the previous one when nothing changed."""
    return build_status(_inputs(snapshot, plan, executed), previous=snapshot.previous, now=snapshot.now)


def _inputs(snapshot: Snapshot, plan: Plan, executed: ExecutionResult) -> StatusInputs:
    desired, after = snapshot.desired, snapshot.after(executed.written)
    return StatusInputs(
        namespace=snapshot.owner.namespace,
        name=snapshot.owner.name,
        generation=snapshot.resource.generation,
        paused=snapshot.resource.paused,
        withheld=snapshot.spec.withheld,
        invalid=snapshot.spec.invalid,
        url=desired.service.url,
        desired=desired,
        observations=snapshot.observations,
        rollout=plan.rollout,
        allocation=plan.allocation,
        asleep=plan.asleep and after.empty,
        failures=executed.failures,
        workloads=after.leading_workloads(desired.revision),
        pods=as_routers_see(snapshot.pods, snapshot.observations.pod_faults),
        aggregated=after.aggregated_revisions,
        autoscalers={role: after.autoscaler(role) for role in desired.autoscaled},
        model=after.model,
        route=after.route,
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
