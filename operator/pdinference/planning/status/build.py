"""The complete status of a PDInference.

Tests: tests/planning/test_status.py
"""

from datetime import datetime

from pdinference.api.names import SERVING_ROLES
from pdinference.api.v1alpha1 import PlanStatus, RolesStatus, Status
from pdinference.api.v1alpha1.conditions import (
    AUTOSCALING,
    CLIENTS_AUTHENTICATED,
    DECODE_COMPUTES_PROMPTS,
    KV_TRANSFER,
    MEMORY_FITS,
    MODEL_READY,
    OBJECTIVES_MET,
    PINNED,
    READY,
    ROUTE_ACCEPTED,
)
from pdinference.api.v1alpha1.status import ModelStatus
from pdinference.memory.observed import compared
from pdinference.planning.condition_changes import ROLE_CONDITIONS, build_conditions, carry_over
from pdinference.planning.model_report import model_status
from pdinference.planning.status.autoscaling import autoscaling
from pdinference.planning.status.deadline import last_progress, late
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.status.kv_transfer import transfer
from pdinference.planning.status.model import memory_fits, model_failure, model_ready
from pdinference.planning.status.objectives import objectives
from pdinference.planning.status.problems import first_problem, role_problem
from pdinference.planning.status.progressing import kstatus, progressing
from pdinference.planning.status.prompts import decode_computes_prompts
from pdinference.planning.status.ready import ready
from pdinference.planning.status.roles import role_ready, role_status
from pdinference.planning.status.route import route_accepted
from pdinference.planning.status.starts import typical_start, with_starts


def build_status(inputs: StatusInputs, *, previous: Status, now: datetime) -> Status:
    """The status to write; equal to `previous` when nothing changed."""
    roles = {role: role_status(inputs, role) for role in SERVING_ROLES}
    problems = {role: role_problem(inputs, role, roles[role], previous) for role in SERVING_ROLES}
    first = first_problem(inputs.failures, problems)
    model = model_ready(inputs, previous)
    since = last_progress(inputs, previous=previous, roles=roles, problems=problems, first=first, model=model, now=now)
    progress = progressing(
        inputs,
        first,
        model_failure=model_failure(inputs, previous),
        late=late(since, inputs.desired.progress_deadline, now),
    )
    counts = with_starts(
        RolesStatus(**{role.value: status for role, status in roles.items()}), inputs.pods, previous, now
    )
    kv_transfer, transfer_numbers = transfer(inputs, previous, now)
    objectives_met, attained = objectives(inputs, previous, now)
    results = {
        READY: ready(inputs, first, progress, typical_start(counts)),
        **{ROLE_CONDITIONS[role]: role_ready(inputs, role, roles[role], problems[role]) for role in SERVING_ROLES},
        MODEL_READY: model,
        **kstatus(progress),
        MEMORY_FITS: memory_fits(inputs.desired.memory),
        PINNED: inputs.desired.pinned,
        CLIENTS_AUTHENTICATED: inputs.desired.clients_authenticated,
        AUTOSCALING: autoscaling(inputs),
        DECODE_COMPUTES_PROMPTS: decode_computes_prompts(inputs, previous),
        KV_TRANSFER: kv_transfer,
        OBJECTIVES_MET: objectives_met,
        ROUTE_ACCEPTED: route_accepted(inputs),
    }
    fresh = build_conditions(results, generation=inputs.generation, now=now)
    return Status(
        observed_generation=inputs.generation,
        url=inputs.url,
        revision=inputs.desired.revision,
        serving_revision=inputs.rollout.serving,
        roles=counts,
        plan=_plan(inputs, previous),
        model=_model(inputs, previous),
        transfer=transfer_numbers,
        objectives=attained,
        last_progress_time=since,
        conditions=carry_over(fresh, previous.conditions),
    )


def _model(inputs: StatusInputs, previous: Status) -> ModelStatus | None:
    """Facts of the stored spec's model; they may be why the spec is invalid."""
    if inputs.invalid:
        return previous.model
    return model_status(inputs.model, previous.model) if inputs.model else None


def _plan(inputs: StatusInputs, previous: Status) -> PlanStatus | None:
    reported = {
        role: [caches[pod.name] for pod in inputs.current_pods(role) if pod.name in caches]
        for role, caches in inputs.observations.load.kv_caches.items()
    }
    return compared(
        inputs.desired.memory.status, reported, previous.plan if previous.revision == inputs.desired.revision else None
    )
