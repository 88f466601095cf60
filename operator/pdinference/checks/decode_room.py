"""Warns about a small KV cache of D and suggests changes. Each suggestion is verified with a memory plan."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pdinference.api.names import Role
from pdinference.api.v1alpha1.roles.kv_tiers import CPUTier, KVTiers
from pdinference.api.validation import Problem
from pdinference.checks.remedies import (
    SHORTEST,
    UTILIZATIONS,
    Change,
    changed,
    in_words,
    larger_devices,
    more_ranks,
    planned,
    rounded_length,
)
from pdinference.memory import Inputs, RolePlan, fits, instance

_TIER = "64Gi"
_TIER_FIELD = "decode.kvTiers.cpu.size"


@dataclass(frozen=True, slots=True)
class MoreRoom:
    """A change that gives D room for two requests of maximum length per GPU, or adds a CPU tier.

    Attributes:
        change: The fields with their values.
        plan: Memory plan of D with the change.
    """

    change: str
    plan: RolePlan

    def as_json(self) -> dict[str, object]:
        """Capacity of a D instance with the change; each number is `{value, source, note}`."""
        return {
            "change": self.change,
            "gpus": instance.devices(self.plan),
            "kvCapacityTokens": instance.tokens(self.plan).as_json(),
            "maxConcurrency": instance.concurrency(self.plan).as_json(),
            "tierCapacityTokens": {name: tokens.as_json() for name, tokens in self.plan.tiers.items()},
        }


def room_warnings(inputs: Inputs, plan: RolePlan) -> Iterator[Problem]:
    """A warning if D has room for fewer than two requests of maximum length per GPU.

    Args:
        inputs: Inputs of the plan.
        plan: Memory plan of D, which fits.
    """
    if instance.is_small(plan) is not True:
        return
    gpus, enough = instance.devices(plan), instance.FEW_REQUESTS
    ways = "; ".join(f"{room.change} ({_gain(room.plan, plan)})" for room in more_room(inputs, plan))
    yield Problem(
        "spec.decode",
        f"The KV cache of an instance holds {instance.tokens(plan).value:,.0f} tokens: "
        f"{instance.concurrency(plan).value:,.1f} requests of {plan.settings.max_length:,}, fewer than {enough} for "
        f"each of its {gpus} GPU{'s' if gpus > 1 else ''}. "
        + (f"More room: {ways}." if ways else "Use larger devices."),
    )


def more_room(inputs: Inputs, plan: RolePlan) -> list[MoreRoom]:
    """Changes that give D more room, the smallest of each kind; empty if D has enough."""
    if instance.is_small(plan) is not True:
        return []
    if inputs.memory is not None:
        stated = {"decode.accelerator.memory": f"{inputs.memory.value:.0f}"}
        inputs = replace(inputs, spec=changed(inputs.spec, stated), memory=None)
    found = (next(_enough(inputs, changes), None) for changes in _kinds(inputs, plan))
    tier = None if fits(plan) is False else _tier(inputs)  # a tier does not help if the model does not fit
    return [room for room in (*found, tier) if room is not None]


def _enough(inputs: Inputs, changes: Iterator[Change]) -> Iterator[MoreRoom]:
    for change in changes:
        other = planned(inputs, Role.DECODE, change)
        if other is not None and instance.is_small(other) is False and fits(other) is not False:
            yield MoreRoom(in_words(change), other)


def _kinds(inputs: Inputs, plan: RolePlan) -> Iterator[Iterator[Change]]:
    spec, settings = inputs.spec, plan.settings
    if settings.kv_bytes > 1:
        yield iter([{"engine.kvCache.dtype": "fp8"}])
    yield ({path: size} for path, size in more_ranks(spec, Role.DECODE, plan))
    yield larger_devices(spec, Role.DECODE)
    yield ({"decode.gpuMemoryUtilization": each} for each in UTILIZATIONS if each > settings.utilization)
    yield _shorter(plan)


def _shorter(plan: RolePlan) -> Iterator[Change]:
    held = instance.tokens(plan).value or 0
    length = rounded_length(int(held / instance.devices(plan) / instance.FEW_REQUESTS))
    if length >= SHORTEST:
        yield {"model.maxModelLength": length}


def _tier(inputs: Inputs) -> MoreRoom | None:
    """A CPU tier for the KV cache of preempted requests. It does not raise the number of running requests."""
    if inputs.spec.decode.kv_tiers is not None:
        return None
    other = planned(inputs, Role.DECODE, {"decode.kvTiers": KVTiers(cpu=CPUTier(size=_TIER))})
    return None if other is None else MoreRoom(in_words({_TIER_FIELD: _TIER}), other)


def _gain(plan: RolePlan, before: RolePlan) -> str:
    if "cpu" in plan.tiers and "cpu" not in before.tiers:
        return f"{plan.tiers['cpu'].value:,.0f} tokens of preempted requests"
    length, requests = plan.settings.max_length, f"{instance.concurrency(plan).value:,.1f} requests"
    return requests if length == before.settings.max_length else f"{requests} of that length"
