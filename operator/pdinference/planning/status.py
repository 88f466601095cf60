"""The status of a PDInference, from what was wanted, what is there, and what went wrong."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, SERVING_ROLES, Role
from pdinference.api.v1alpha1 import Condition, PlanStatus, RolesStatus, RoleStatus, Status
from pdinference.planning import conditions, troubles
from pdinference.planning.conditions import ASLEEP, condition
from pdinference.planning.memory import NO_VERDICT, MemoryVerdict
from pdinference.planning.memory.observed import compared
from pdinference.planning.model import ModelView, model_advice, model_status
from pdinference.planning.observed import AutoscalerState, Failure, PodSummary, WorkloadState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.bounds import Cause
from pdinference.planning.scaling.condition import Measured, judgement, scaling_text
from pdinference.planning.scaling.coordination import Coordination
from pdinference.planning.troubles import Advice

_LETTER = {Role.PARAMETER: "P", Role.DECODE: "D", Role.ROUTER: "Router"}
_HTTP_PORT = 80
_INVALID = "InvalidSpec"
_NOT_HEARD = (
    f"Router pods do not tell on port {names.ACTIVATOR_STATE_PORT} whether anybody asks, so P and D do not sleep; "
    "a NetworkPolicy of your own may be in the way."
)
_MEMORY_REASONS: dict[bool | None, tuple[Literal["True", "False", "Unknown"], str]] = {
    True: ("True", "Fits"),
    False: ("False", "DoesNotFit"),
    None: ("Unknown", "NotKnown"),
}


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the status is made of.

    Attributes:
        workloads: The live workload of each role that serves the target revision; absent while it does not exist.
        pods: All live pods of the resource, of any revision.
        failures: Children that could not be applied or pruned in this reconcile.
        memory: Whether the model fits its devices.
        model: The Job that downloads or inspects the model; None when none is wanted.
        autoscalers: The HPA of each autoscaled role; None where there is none yet.
        measured: What is known of the load that they go by.
        scaled: Whether there is a revision for them to follow.
        together: What P and D may have together.
        holds: Whether requests wait in router pods while P and D have none, so that a ready router says little.
        asleep: Whether P and D have no pods because nobody asks.
        heard: Whether router pods tell how many requests there are.
    """

    namespace: str
    name: str
    generation: int
    port: int
    target: str
    desired: Mapping[Role, int]
    rollout: RolloutPlan
    workloads: Mapping[Role, WorkloadState]
    pods: tuple[PodSummary, ...]
    failures: tuple[Failure, ...] = ()
    memory: MemoryVerdict = NO_VERDICT
    model: ModelView | None = None
    autoscalers: Mapping[Role, AutoscalerState | None] = field(default_factory=dict)
    measured: Measured = field(default_factory=Measured)
    scaled: bool = False
    together: Coordination = field(default_factory=Coordination)
    holds: bool = False
    asleep: bool = False
    heard: bool = True

    def wanted(self, role: Role) -> int:
        """How many pods the role is to have: as the spec says, or as its HPA has decided."""
        workload = self.workloads.get(role)
        return workload.desired if role in self.autoscalers and workload is not None else self.desired[role]


def build_status(situation: Situation, *, previous: Status, now: datetime) -> Status:
    """The status to write; equal to `previous` when nothing changed."""
    roles = {role: _role_status(situation, role) for role in SERVING_ROLES}
    unwell = {role: _role_advice(situation, role, roles[role]) for role in SERVING_ROLES}
    fresh = [
        _ready(situation, unwell, now),
        *(_role_ready(situation, role, roles[role], unwell[role], now) for role in SERVING_ROLES),
        *([_model_ready(situation, situation.model, now)] if situation.model else []),
        _progressing(situation, unwell, now),
        _memory_fits(situation.memory, situation.generation, now),
        *_autoscaling(situation, now),
    ]
    return Status(
        observed_generation=situation.generation,
        url=service_url(situation.namespace, situation.name, situation.port),
        revision=situation.target,
        serving_revision=situation.rollout.serving,
        roles=RolesStatus(**{role.value: status for role, status in roles.items()}),
        plan=_plan(situation, previous),
        model=model_status(situation.model, previous.model) if situation.model else None,
        conditions=conditions.carry_over(fresh, previous.conditions),
    )


def invalid_status(
    generation: int,
    message: str,
    *,
    router: WorkloadState | None,
    previous: Status,
    now: datetime,
    memory: MemoryVerdict = NO_VERDICT,
) -> Status:
    """The status of a resource whose stored spec is invalid: its children are left alone, and so is what is known."""
    stuck = condition(conditions.PROGRESSING, "False", _INVALID, message, generation=generation, now=now)
    ready = _answers(router, "The spec is invalid; nothing was created.", generation, now)
    if any(old.type == conditions.READY and old.reason in {ASLEEP, _INVALID} for old in previous.conditions):
        message = "P and D sleep, and no request starts them before the spec is corrected."
        ready = condition(conditions.READY, "False", _INVALID, message, generation=generation, now=now)
    fresh = [ready, stuck, _memory_fits(memory, generation, now)]
    named = {new.type for new in fresh}
    kept = [old for old in previous.conditions if old.type not in named]
    fresh = [ready, *kept, *fresh[1:]]
    return previous.model_copy(
        update={
            "observed_generation": generation,
            "plan": memory.status,
            "conditions": conditions.carry_over(fresh, previous.conditions),
        }
    )


def _plan(situation: Situation, previous: Status) -> PlanStatus | None:
    told = {
        role: [caches[pod.name] for pod in _current_pods(situation, role) if pod.name in caches]
        for role, caches in situation.measured.kv_caches.items()
    }
    return compared(situation.memory.status, told, previous.plan if previous.revision == situation.target else None)


def _memory_fits(memory: MemoryVerdict, generation: int, now: datetime) -> Condition:
    status, reason = _MEMORY_REASONS[memory.fits]
    return condition(conditions.MEMORY_FITS, status, reason, memory.message, generation=generation, now=now)


def service_url(namespace: str, name: str, port: int) -> str:
    """Where clients inside the cluster send requests."""
    host = f"http://{names.router_service(name)}.{namespace}.svc"
    return host if port == _HTTP_PORT else f"{host}:{port}"


def _current_pods(situation: Situation, role: Role) -> list[PodSummary]:
    return [pod for pod in situation.pods if pod.role is role and pod.revision == situation.target and not pod.gone]


def _role_status(situation: Situation, role: Role) -> RoleStatus:
    pods = [pod for pod in _current_pods(situation, role) if pod.node_rank == 0 and not pod.terminating]
    ready = sum(pod.ready for pod in pods)
    desired = situation.wanted(role)
    hpa = situation.autoscalers.get(role)
    selector = names.role_selector(situation.name, role, situation.target)
    return RoleStatus(
        replicas=len(pods),
        ready=ready,
        desired=desired,
        summary=f"{ready}/{desired}",
        selector=",".join(f"{key}={value}" for key, value in selector.items()),
        scaling=scaling_text(hpa) if hpa is not None else "",
    )


def _role_advice(situation: Situation, role: Role, counts: RoleStatus) -> Advice | None:
    """Why the role is not as wanted; None when it is."""
    if counts.desired == 0:
        return _without_pods(situation, role)
    if counts.ready >= counts.desired:
        return None
    workload = situation.workloads.get(role)
    if (waits := _held_back(situation, role, counts, workload)) is not None:
        return waits
    if workload is not None and workload.failure:
        return Advice("PodsNotCreated", f"{_LETTER[role]}: pods cannot be created: {workload.failure}")
    found = troubles.worst(_current_pods(situation, role), situation.namespace)
    count = f"{_LETTER[role]}: {counts.ready} of {counts.desired} pods ready."
    if found is not None:
        return Advice(found.reason, f"{count} {found.message}")
    return Advice("Starting", f"{count} {_missing(situation, role, workload)}")


def _held_back(situation: Situation, role: Role, counts: RoleStatus, workload: WorkloadState | None) -> Advice | None:
    """The pods of a role do not come yet, or not all, because we wait for something; None when we do not."""
    together, letter = situation.together, _LETTER[role]
    if role not in ENGINE_ROLES:
        return None
    if workload is None and situation.model and situation.model.awaited:
        model = _model_advice(situation, situation.model)
        return Advice("ModelNotReady", f"{letter}: waits for the model. {model.message}")
    if workload is None and together.held:
        return Advice(Cause.GPU_BUDGET, f"{letter}: {together.held}")
    if workload is not None and together.budget is not None and workload.desired < counts.desired:
        why = f"spec.autoscaling.gpuBudget leaves GPUs for {workload.desired} until other pods let go of theirs."
        return Advice(Cause.GPU_BUDGET, f"{letter}: {counts.ready} of {counts.desired} pods ready; {why}")
    return None


def _without_pods(situation: Situation, role: Role) -> Advice:
    """Why no pod is wanted."""
    if situation.asleep and role in ENGINE_ROLES:
        return Advice(ASLEEP, f"{_LETTER[role]}: asleep, because nobody asks; the next request starts its pods.")
    if situation.desired[role] > 0 and situation.together.budget is not None:
        why = "spec.autoscaling.gpuBudget leaves no GPUs until other pods let go of theirs."
        return Advice(Cause.GPU_BUDGET, f"{_LETTER[role]}: {why}")
    return Advice("ScaledToZero", f"{_LETTER[role]}: spec.{role}.replicas is 0, so nothing runs; raise it to serve.")


def _missing(situation: Situation, role: Role, workload: WorkloadState | None) -> str:
    """There are fewer pods than wanted and none of them is in trouble."""
    if workload is None:
        return "The workload does not exist yet."
    kind = "statefulset" if role is Role.PARAMETER else "deployment"
    return (
        "Waiting for pods to be created; if this lasts, see "
        f"`kubectl describe -n {situation.namespace} {kind} {workload.name}`."
    )


def _role_ready(
    situation: Situation, role: Role, counts: RoleStatus, unwell: Advice | None, now: datetime
) -> Condition:
    type_ = conditions.ROLE_CONDITIONS[role]
    if unwell is not None:
        return condition(type_, "False", *unwell, generation=situation.generation, now=now)
    message = f"{_LETTER[role]}: {counts.ready} of {counts.desired} pods ready."
    return condition(type_, "True", "AllReady", message, generation=situation.generation, now=now)


def _model_advice(situation: Situation, model: ModelView) -> Advice:
    pods = [pod for pod in situation.pods if pod.role is Role.MODEL and not pod.gone]
    return model_advice(model, pods, situation.namespace)


def _model_ready(situation: Situation, model: ModelView, now: datetime) -> Condition:
    status: Literal["True", "False"] = "True" if model.done else "False"
    advice = _model_advice(situation, model)
    return condition(conditions.MODEL_READY, status, *advice, generation=situation.generation, now=now)


def _ready(situation: Situation, unwell: Mapping[Role, Advice | None], now: datetime) -> Condition:
    because = _first_problem(situation, unwell)
    message = because.message if because else "No router pod is ready yet."
    reason = because.reason if because else "Starting"
    router = situation.workloads.get(Role.ROUTER)
    if situation.asleep and router is not None and router.ready > 0:
        message = (
            "No request came for a while, so P and D have no pods. The next one starts them, and waits until then."
        )
        return condition(conditions.READY, "True", ASLEEP, message, generation=situation.generation, now=now)
    if situation.holds and not _pair_answers(situation):
        return condition(conditions.READY, "False", reason, message, generation=situation.generation, now=now)
    return _answers(situation.workloads.get(Role.ROUTER), message, situation.generation, now, reason=reason)


def _pair_answers(situation: Situation) -> bool:
    """Whether the revision that requests go to has a P and a D pod."""
    serving = situation.rollout.serving
    ready = {pod.role for pod in situation.pods if pod.ready and pod.revision == serving and pod.node_rank == 0}
    return ready >= set(ENGINE_ROLES)


def _answers(
    router: WorkloadState | None, otherwise: str, generation: int, now: datetime, *, reason: str = "NotServing"
) -> Condition:
    if router is not None and router.ready > 0:
        message = f"Requests are answered; {router.ready} router pod{'' if router.ready == 1 else 's'} ready."
        return condition(conditions.READY, "True", "Serving", message, generation=generation, now=now)
    return condition(conditions.READY, "False", reason, otherwise, generation=generation, now=now)


def _autoscaling(situation: Situation, now: datetime) -> list[Condition]:
    if not situation.autoscalers:
        return []
    if situation.asleep:
        message = "P and D have no pods because nobody asks; their load counts again from the next request on."
        return [condition(conditions.AUTOSCALING, "True", ASLEEP, message, generation=situation.generation, now=now)]
    if situation.holds and not _pair_answers(situation):
        message = "P and D start; their load counts as soon as they answer."
        return [
            condition(conditions.AUTOSCALING, "Unknown", "Starting", message, generation=situation.generation, now=now)
        ]
    judged = judgement(situation.autoscalers, situation.measured, serves=situation.scaled, together=situation.together)
    if situation.holds and not situation.heard:
        judged = judged._replace(message=f"{judged.message} {_NOT_HEARD}")
    return [condition(conditions.AUTOSCALING, *judged, generation=situation.generation, now=now)]


def _progressing(situation: Situation, unwell: Mapping[Role, Advice | None], now: datetime) -> Condition:
    lasting = [failure for failure in situation.failures if not failure.transient]
    if lasting:
        return condition(
            conditions.PROGRESSING,
            "False",
            lasting[0].reason,
            _listed(lasting),
            generation=situation.generation,
            now=now,
        )
    problem = _first_problem(situation, unwell)
    if problem is not None and problem.reason not in {"ScaledToZero", ASLEEP}:
        message = f"Rolling out revision {situation.target}. {problem.message}"
        if situation.rollout.serving not in {"", situation.target}:
            message += f" Revision {situation.rollout.serving} keeps answering requests until then."
        status, reason = "True", "GpuBudget" if problem.reason == Cause.GPU_BUDGET else "RollingOut"
    elif not situation.rollout.complete and situation.desired[Role.ROUTER] > 0 and problem is None:
        status, reason, message = "True", "RollingOut", f"Traffic moves to revision {situation.target}."
    else:
        status, reason, message = "False", "RolloutComplete", f"Revision {situation.target} is rolled out."
    return condition(
        conditions.PROGRESSING,
        "True" if status == "True" else "False",
        reason,
        message,
        generation=situation.generation,
        now=now,
    )


def _first_problem(situation: Situation, unwell: Mapping[Role, Advice | None]) -> Advice | None:
    """The problem to solve first: what could not be applied, then P, then D, then the router, which needs both."""
    if situation.failures:
        return Advice(situation.failures[0].reason, _listed(situation.failures))
    engine = [unwell[role] for role in ENGINE_ROLES if unwell[role] is not None]
    return engine[0] if engine else unwell[Role.ROUTER]


def _listed(failures: Iterable[Failure]) -> str:
    """All failures in one message, the same whatever the order in which requests happened to fail."""
    ordered = sorted(failures, key=lambda failure: (failure.kind, failure.name))
    return " ".join(f"{failure.kind} {failure.name}: {failure.message}" for failure in ordered)
