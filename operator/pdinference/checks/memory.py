"""Checks whether the model fits its devices, and suggests changes if it does not."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PlanStatus, RoleMemory, Spec
from pdinference.api.validation import Problem
from pdinference.checks.decode_room import room_warnings
from pdinference.checks.facts import Facts
from pdinference.checks.plan_warnings import plan_warnings
from pdinference.checks.remedies import remedies
from pdinference.memory import (
    Figure,
    Inputs,
    MemoryVerdict,
    RolePlan,
    UnusableSpecError,
    fits,
    instance,
    least_memory,
    one_request,
    plan_role,
    ways_out,
)
from pdinference.memory.figures import GIB
from pdinference.memory.moved import moved
from pdinference.planning.condition_changes import ROLE_WORDS

_NO_FACTS = MemoryVerdict(None, f"The model's shape is not known. {ways_out.of_the_resource(ways_out.SHAPE)}")


_NOT_PLANNED = re.compile(
    r"(metadata|spec\.(router|rollout|transfer|colocation|model\.(name|chatTemplate|trustRemoteCode|generationDefaults)"
    r"|engine\.(image|args)|(parameter|decode)\.(replicas|autoscaling|placement|resources|podTemplate|args)))\b"
)
"""Fields that the plan does not use, or, for `args`, uses only as far as it can parse them."""


def can_be_planned(problems: Iterable[Problem]) -> bool:
    """Whether the spec can be planned despite these problems."""
    return all(_NOT_PLANNED.match(problem.field) for problem in problems)


def judge(spec: Spec, facts: Facts) -> MemoryVerdict:
    """Plan the roles that the mode has."""
    if facts.shape is None:
        return _NO_FACTS
    try:
        return _judged(Inputs(spec, facts.shape, facts.checkpoint))
    except UnusableSpecError as error:
        return MemoryVerdict(None, str(error))


def _judged(inputs: Inputs) -> MemoryVerdict:
    spec = inputs.spec
    plans = {role: plan_role(inputs, role) for role in spec.engine_roles}
    verdicts = {role: fits(plan) for role, plan in plans.items()}
    found = tuple(_problem(inputs, role, plans[role]) for role in plans if verdicts[role] is False)
    refused = spec.memory_policy == "Enforce"
    small = (
        *(room_warnings(inputs, plans[Role.DECODE]) if verdicts[Role.DECODE] else ()),
        *(replace(problem, message=ways_out.of_the_resource(problem.message)) for problem in plan_warnings(plans)),
    )
    return MemoryVerdict(
        fits=False if found else None if None in verdicts.values() else True,
        message=" ".join(map(str, found)) or _summary(plans, verdicts),
        problems=found if refused else (),
        warnings=small if refused else (*found, *small),
        status=PlanStatus(**{role.value: _as_status(plan) for role, plan in plans.items()}),
        moved=moved(inputs, plans[Role.DECODE]),
    )


def _problem(inputs: Inputs, role: Role, plan: RolePlan) -> Problem:
    changes = remedies(inputs, role, plan)
    advice = (
        f"Make one of these changes: {'; '.join(changes)}."
        if changes
        else "No single change is sufficient. Use larger or more devices, or a smaller model."
    )
    if inputs.spec.memory_policy == "Enforce":
        advice += " Or set spec.memoryPolicy: Warn to roll it out anyway."
    return Problem(f"spec.{role}", f"The model does not fit {_devices(plan)}. {_needs(plan)} {advice}")


def _devices(plan: RolePlan) -> str:
    number = instance.devices(plan)
    return "one device" if number == 1 else f"the {number} devices of an instance"


def _needs(plan: RolePlan) -> str:
    stage, settings = plan.stage, plan.settings
    length = f"{settings.max_length:,} tokens" if settings.max_length else "unknown length"
    request = one_request(plan)
    if settings.cpu or settings.kv_budget is not None:
        held = (stage.weights, stage.activations, stage.overhead, stage.kv_cache)
        together = sum(part.value or 0 for part in held)
        use = f"With weights ({_gib(stage.weights)}), {together / GIB:.1f} GiB of {_gib(plan.memory)} are in use."
        if plan.memory.value is not None and together > plan.memory.value:
            return f"The spec states a KV cache of {_gib(stage.kv_cache)}. {use}"
        needs = f"One request of {length} needs {_gib(request)} of KV cache, but only {_gib(stage.kv_cache)} is free."
        return needs if settings.cpu else f"{needs} {use}"
    parts = {
        "weights": stage.weights,
        "activations": stage.activations,
        "overhead": stage.overhead,
        f"KV cache of one request of {length}": request,
    }
    known = [f"{name} {_gib(part)}" for name, part in parts.items() if part.known]
    least = least_memory(plan)
    total = _gib(least) if least.known else "more than the available memory"
    subject = "It" if instance.devices(plan) == 1 else "Each"
    return (
        f"{subject} needs {total} ({', '.join(known)}), but vLLM may use {_gib(stage.requested)}: "
        f"{settings.utilization:g} of the device's {_gib(plan.memory)}."
    )


def _summary(plans: Mapping[Role, RolePlan], verdicts: Mapping[Role, bool | None]) -> str:
    return " ".join(_role_summary(role, plans[role], verdict) for role, verdict in verdicts.items())


def _role_summary(role: Role, plan: RolePlan, verdict: bool | None) -> str:
    if verdict is None:
        return f"{ROLE_WORDS[role]}: {ways_out.of_the_resource(plan.concurrency.note)}"
    return (
        f"{ROLE_WORDS[role]}: weights {_gib(plan.stage.weights)}, KV cache {_gib(plan.stage.kv_cache)} on each device, "
        f"room for {plan.concurrency.value:,.1f} requests of {plan.settings.max_length:,} tokens."
    )


def _as_status(plan: RolePlan) -> RoleMemory:
    stage = plan.stage
    return RoleMemory(
        device_bytes=_whole(plan.memory),
        weights_bytes=_whole(stage.weights),
        activation_bytes=_whole(stage.activations),
        overhead_bytes=_whole(stage.overhead),
        kv_bytes_per_token=_whole(stage.kv_bytes_per_token),
        kv_capacity_tokens=_whole(plan.tokens),
        kv_blocks=_whole(plan.blocks),
        max_concurrency=plan.concurrency.value,
    )


def _whole(figure: Figure) -> int | None:
    """An integer for the status; None if unknown or above 64 bits."""
    return int(figure.value) if figure.value is not None and abs(figure.value) < 2**63 else None


def _gib(figure: Figure) -> str:
    return "unknown" if figure.value is None else f"{figure.value / GIB:.1f} GiB"
