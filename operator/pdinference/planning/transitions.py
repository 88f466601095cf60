"""The Events for a change of the status."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Condition, Status
from pdinference.api.v1alpha1.conditions import (
    AT_REST,
    AUTOSCALING,
    DEADLINE_EXCEEDED,
    DEADLINE_REASONS,
    FINAL_REASONS,
    INVALID,
    KV_TRANSFER,
    MODEL_READY,
    OBJECTIVES_MET,
    PROGRESSING,
    READY,
    ROUTE_ACCEPTED,
)
from pdinference.api.v1alpha1.status import RepairStatus
from pdinference.planning.condition_changes import ASLEEP, find
from pdinference.planning.model_report import CHECKED, UNDER_WAY
from pdinference.planning.scaling.limited import JOINT_LIMITS, LimitReason
from pdinference.planning.status.problems import SCALED_TO_ZERO

_WITH_COUNTS = FINAL_REASONS | DEADLINE_REASONS | {DEADLINE_EXCEEDED}
"""Reasons whose messages contain counts of pods, so that a new message alone is no Event."""
_ORDINARY = frozenset({"RollingOut", *AT_REST})
_WITHOUT_PODS = frozenset({ASLEEP, INVALID})
"""Reasons of `Ready` while P and D have no pods."""
_NO_LOADS: Mapping[Role, str] = MappingProxyType({})


class Transition(NamedTuple):
    """One Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def transitions(old: Status, new: Status, *, loads: Mapping[Role, str] = _NO_LOADS) -> Iterator[Transition]:
    """The Events for a change from one status to another.

    Args:
        old: Before.
        new: Now.
        loads: The load of each role on which its HPA based the current count, if known.
    """
    if new.revision != old.revision:
        yield _rollout_started(old, new)
    if new.serving_revision == new.revision != old.serving_revision:
        yield Transition("Normal", "RolloutFinished", f"Requests go to revision {new.revision}.")
    yield from _readiness(_find(old, READY), _find(new, READY))
    yield from _sleep(_find(old, READY), _find(new, READY))
    yield from _model(_find(old, MODEL_READY), _find(new, MODEL_READY))
    yield from _problem(_find(old, PROGRESSING), _find(new, PROGRESSING), model=_find(new, MODEL_READY))
    yield from _scaling(old, new, loads)
    yield from _inactivity(_find(old, AUTOSCALING), _find(new, AUTOSCALING))
    yield from _limits(_find(old, AUTOSCALING), _find(new, AUTOSCALING))
    yield from _route(_find(old, ROUTE_ACCEPTED), _find(new, ROUTE_ACCEPTED))
    yield from _transfer(_find(old, KV_TRANSFER), _find(new, KV_TRANSFER))
    yield from _repair(_repair_of(old), _repair_of(new))
    yield from _objectives(_find(old, OBJECTIVES_MET), _find(new, OBJECTIVES_MET))


def _rollout_started(old: Status, new: Status) -> Transition:
    if not old.revision:
        return Transition("Normal", "Created", f"Revision {new.revision} is being created.")
    return Transition("Normal", "RolloutStarted", f"Revision {new.revision} replaces {old.revision}.")


def _readiness(old: Condition | None, new: Condition | None) -> Iterator[Transition]:
    if new is None or (old is not None and old.status == new.status):
        return
    if new.status == "True":
        yield Transition("Normal", "Ready", new.message)
    elif old is not None and (old.reason != ASLEEP or new.reason in {ASLEEP, SCALED_TO_ZERO}):
        yield Transition("Warning", "NotReady", new.message)


def _sleep(old: Condition | None, new: Condition | None) -> Iterator[Transition]:
    if old is None or new is None or (old.reason in _WITHOUT_PODS) == (new.reason in _WITHOUT_PODS):
        return
    if new.reason == ASLEEP:
        yield Transition("Normal", "FellAsleep", new.message)
    elif old.reason in _WITHOUT_PODS and new.reason != SCALED_TO_ZERO:
        yield Transition("Normal", "WokeUp", "P and D are starting.")


def _model(old: Condition | None, new: Condition | None) -> Iterator[Transition]:
    if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
        return
    if new.reason == CHECKED and (old is None or old.status != "False"):
        return
    if new.status == "True" or new.reason == "Downloading":
        yield Transition("Normal", new.reason, new.message)
    elif new.reason not in UNDER_WAY:
        yield Transition("Warning", new.reason, new.message)


def _problem(old: Condition | None, new: Condition | None, *, model: Condition | None) -> Iterator[Transition]:
    if new is not None and new.reason == LimitReason.GPU_BUDGET and (old is None or old.reason != new.reason):
        yield Transition("Warning", new.reason, new.message)
    if new is None or new.status != "False" or new.reason in _ORDINARY:
        return
    if model is not None and model.reason == new.reason:
        return  # the Event of ModelReady reports it
    if old is not None and old.reason == new.reason and new.reason in _WITH_COUNTS:
        return
    if old is None or (old.reason, old.message) != (new.reason, new.message):
        yield Transition("Warning", new.reason, new.message)


def _scaling(old: Status, new: Status, loads: Mapping[Role, str]) -> Iterator[Transition]:
    """The desired count of a role has changed within one revision."""
    if old.revision != new.revision:
        return
    for role in ENGINE_ROLES:
        before, after = getattr(old.roles, role), getattr(new.roles, role)
        # A role without pods starts, and a role that is to have none stops or sleeps: neither is scaling.
        scaled = before.replicas > 0 and after.desired > 0 and before.desired != after.desired
        if scaled and before.scaling and after.scaling:
            reason = "ScaledUp" if after.desired > before.desired else "ScaledDown"
            load = f" Load per pod/target: {loads[role]}." if role in loads else ""
            yield Transition("Normal", reason, f"{role}: {before.desired} to {after.desired} pods.{load}")


def _inactivity(old: Condition | None, new: Condition | None) -> Iterator[Transition]:
    """Autoscaling became inactive, or active again. A new HPA may be inactive from the start."""
    if old is None or new is None or old.status == new.status:
        return
    if new.status == "False":
        yield Transition("Warning", "AutoscalingInactive", new.message)
    elif old.status == "False" and new.status == "True":
        yield Transition("Normal", "AutoscalingActive", new.message)


def _limits(old: Condition | None, new: Condition | None) -> Iterator[Transition]:
    """A joint limit of both roles (ratio, GPU budget) applies to a role."""
    if old is not None and new is not None and new.reason in JOINT_LIMITS and old.reason != new.reason:
        yield Transition("Normal", "ScalingLimited", new.message)


def _route(old: Condition | None, new: Condition | None) -> Iterator[Transition]:
    if new is None or (old is not None and old.status == new.status):
        return
    if new.status == "True":
        yield Transition("Normal", "RouteAccepted", new.message)
    elif new.status == "False":
        yield Transition("Warning", "RouteNotAccepted", new.message)


def _transfer(old: Condition | None, new: Condition | None) -> Iterator[Transition]:
    """A fault of the KV transfer was found, or is over."""
    if new is None or (old is not None and old.reason == new.reason):
        return
    if new.status == "False":
        yield Transition("Warning", f"KVTransfer{new.reason}", new.message)
    elif new.status == "True" and old is not None and old.status == "False":
        yield Transition("Normal", "KVTransferRecovered", new.message)


def _repair(old: RepairStatus, new: RepairStatus) -> Iterator[Transition]:
    """A pod was restarted because its KV transfer is broken, and what came of it."""
    if new.restart_time != old.restart_time and new.pods:
        yield Transition("Warning", "KVTransferRepair", f"Pod {new.pods[-1]} is restarted: {new.proof}.")
    if new.outcome == old.outcome:
        return
    if new.outcome == "Repaired":
        yield Transition("Normal", "KVTransferRepaired", f"KV cache gets through since pod {new.pods[-1]} restarted.")
    elif new.outcome == "GaveUp":
        pods = ", ".join(new.pods)
        yield Transition(
            "Warning", "KVTransferNotRepaired", f"{len(new.pods)} restarts did not help, so no more follow: {pods}."
        )


def _repair_of(status: Status) -> RepairStatus:
    found = status.transfer.repair if status.transfer is not None else None
    return found or RepairStatus()


def _objectives(old: Condition | None, new: Condition | None) -> Iterator[Transition]:
    """The latency objectives are missed, or are met again."""
    if new is None or (old is not None and old.reason == new.reason):
        return
    if new.status == "False":
        yield Transition("Warning", "ObjectivesMissed", new.message)
    elif new.status == "True" and old is not None and old.status == "False":
        yield Transition("Normal", "ObjectivesMet", new.message)


def _find(status: Status, type_: str) -> Condition | None:
    return find(status.conditions, type_)
