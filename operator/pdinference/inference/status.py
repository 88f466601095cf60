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
        url=desired.service.url,
        target=desired.revision,
        desired=desired.replicas,
        rollout=plan.rollout,
        workloads=after.leading_workloads(desired.revision),
        autoscalers={role: after.autoscaler(role) for role in desired.autoscaled},
        observations=snapshot.observations,
        minimums={role: desired.scale.roles[role].minimum for role in desired.autoscaled},
        allocation=plan.allocation,
        pods=as_routers_see(snapshot.pods, snapshot.observations.pod_faults),
        aggregated=after.aggregated_revisions,
        failures=executed.failures,
        memory=desired.memory,
        pinned=desired.pinned,
        clients_authenticated=desired.clients_authenticated,
        model=after.model,
        route=after.route,
        verifies_model=desired.verifies_model,
        scales_to_zero=desired.sleeps_after is not None,
        decode_computes_prompts=desired.decode_computes_prompts,
        transfer_path=desired.transfer_path,
        objectives=desired.objectives,
        invalid=snapshot.spec.invalid,
        paused=snapshot.resource.paused,
        withheld=snapshot.spec.withheld,
        asleep=plan.asleep and after.empty,
        progress_deadline=desired.progress_deadline,
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
