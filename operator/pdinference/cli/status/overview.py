"""What `status` shows of a PDInference: a pure function of the resource, its pods and its PDScalers.

Tests: tests/cli/test_status.py
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.plain_text import plain
from pdinference.api.v1alpha1 import Condition, RoleStatus
from pdinference.api.v1alpha1.conditions import (
    BY_NAME,
    NOT_ANSWERING,
    PROGRESSING,
    READY,
    RECONCILING,
    ROLLOUT_COMPLETE,
    STALLED,
)
from pdinference.api.v1alpha1.status import Status
from pdinference.cli.status.ways import WayUse
from pdinference.cli.stored_status import stored_status
from pdinference.cluster.state.pods import pod_record
from pdinference.planning.condition_changes import LIMITED, ROLE_CONDITIONS, find
from pdinference.planning.observed import PodSummary
from pdinference.planning.pod_diagnosis import diagnose

Json = dict[str, Any]

NO_STATUS: Final = (
    "The operator has written no status yet. If this lasts, check with `kubectl pdi doctor` whether it runs."
)
_REPEATED: Final = frozenset({RECONCILING, STALLED})
"""Conditions that say of Progressing what programs need."""
_LONGEST_NAME: Final = 253
_LONGEST_PROBLEM: Final = 2000
_SHARING: Final = "HostLocal"
_UNSPLIT: Final = "Aggregated"
_LAG: Final = timedelta(seconds=10)
"""Time in which a running operator has written a change of a pod into the status."""
_WORDS: Final = {Role.PARAMETER: "P", Role.DECODE: "D", Role.ROUTER: "router"}


@dataclass(frozen=True, slots=True)
class PodLine:
    """A pod.

    Attributes:
        target: Whether it is of the revision that the spec describes.
        problem: Why it is not ready, and what to do; empty if it is.
    """

    name: str
    revision: str
    target: bool
    phase: str
    ready: bool
    ending: bool
    restarts: int
    node: str
    gpus: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RoleView:
    """A role.

    Attributes:
        note: Why it has no pods of its own; empty if it has.
        range: Smallest and largest replica count; None without autoscaling.
        recommended: Pods that its scale target recommends; None without autoscaling.
        limited: Why the allocated count differs from that; empty if it does not.
        load: Load per pod and target, as the HPA reads them; empty without autoscaling.
        start_seconds: How long its pods usually take to start; None if that is not known.
        live: Ready pods of the target revision now, if the status is behind them; None if it is not.
    """

    role: Role
    ready: int
    desired: int
    note: str = ""
    range: tuple[int, int] | None = None
    recommended: int | None = None
    limited: str = ""
    load: str = ""
    pods: tuple[PodLine, ...] = ()
    live: int | None = None
    start_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Concern:
    """A condition that is not as it should be."""

    condition: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class Overview:
    """A PDInference.

    Attributes:
        ready: Reason of the condition Ready, with its status.
        rollout: Reason of the condition Progressing.
        revision: The revision that the spec describes.
        serving: The revision that gets requests.
        ways: Which ways requests went; None if each goes through P and D, or if that was not read.
        notes: What limits this overview.
    """

    namespace: str
    name: str
    url: str
    mode: str
    ready: str
    ready_reason: str
    ready_message: str
    rollout: str
    revision: str
    serving: str
    roles: tuple[RoleView, ...]
    transfer: Mapping[str, Any] = field(default_factory=dict)
    objectives: Mapping[str, Any] = field(default_factory=dict)
    ways: WayUse | None = None
    concerns: tuple[Concern, ...] = ()
    notes: tuple[str, ...] = ()

    def role(self, role: Role) -> RoleView:
        """One of its roles."""
        return next(view for view in self.roles if view.role is role)

    def as_json(self) -> Json:
        """Everything, for programs."""
        found: Json = msgspec.to_builtins(self)
        return found


def overview(
    resource: Json,
    pods: Sequence[Json] = (),
    scalers: Sequence[Json] = (),
    notes: Sequence[str] = (),
    now: datetime | None = None,
) -> Overview:
    """What the status command shows.

    Args:
        resource: The PDInference.
        pods: Its pods.
        scalers: Its PDScalers.
        notes: What could not be read.
        now: Time at which all pods of the resource were read; None if they were not.
    """
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    stored = resource.get("status") or {}
    status = stored_status(stored)
    roles = tuple(_roles(metadata["namespace"], spec, status, pods, scalers))
    if now is not None and status.conditions:
        roles = tuple(replace(view, live=_live_unless_told(view, status, pods, now)) for view in roles)
    ready, progressing = find(status.conditions, READY), find(status.conditions, PROGRESSING)
    return Overview(
        namespace=metadata["namespace"],
        name=metadata["name"],
        url=status.url,
        mode=str(spec.get("mode") or "Disaggregated"),
        ready=ready.status if ready else "Unknown",
        ready_reason=ready.reason if ready else "",
        ready_message=ready.message if ready else "",
        rollout=progressing.reason if progressing else "",
        revision=status.revision,
        serving=status.serving_revision,
        roles=roles,
        transfer=stored.get("transfer") or {},
        objectives=stored.get("objectives") or {},
        concerns=tuple(_concerns(status.conditions)),
        notes=(*_of_moment(metadata, status), *_of_old_status(metadata, roles), *notes),
    )


def _of_moment(metadata: Json, status: Status) -> Iterator[str]:
    """What makes the status older than the resource."""
    generation = metadata.get("generation") or 0
    if metadata.get("deletionTimestamp"):
        yield "It is being deleted."
    elif not status.conditions:
        yield NO_STATUS
    elif status.observed_generation < generation:
        yield f"The operator has not handled the last edit yet (generation {generation})."


def _live_unless_told(view: RoleView, status: Status, pods: Sequence[Json], now: datetime) -> int | None:
    """The number of ready pods of a role, if the status has had time to say it and says another one."""
    condition = find(status.conditions, ROLE_CONDITIONS[view.role])
    if view.note or (condition is not None and condition.reason == NOT_ANSWERING):  # Kubernetes calls more ready
        return None
    ready, moving = 0, False
    for body in pods:
        record = pod_record(body)
        if record is None or record.summary.role is not view.role or record.summary.node_rank:
            continue
        if record.summary.revision == status.revision:
            ready += record.summary.ready and not record.summary.terminating
            moving |= record.summary.terminating or now - _last_change(body) < _LAG
    return None if moving or ready == view.ready else ready


def _last_change(body: Json) -> datetime:
    """When a pod became ready or unready last; long ago if it does not say."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    time = next((one.get("lastTransitionTime") for one in conditions if one["type"] == "Ready"), None)
    try:
        return datetime.fromisoformat(str(time))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _of_old_status(metadata: Json, roles: Sequence[RoleView]) -> Iterator[str]:
    """How old a status is that the pods contradict."""
    late = [view for view in roles if view.live is not None]
    behind = [f"{view.ready} of {view.desired} {_WORDS[view.role]} pods ready, and {view.live} are" for view in late]
    if not behind:
        return
    fields = metadata.get("managedFields") or ()
    times = [str(one["time"]) for one in fields if one.get("subresource") == "status" and "time" in one]
    written = f" It was written last at {plain(max(times), 40)}." if times else ""
    yield (
        f"The status is out of date: it says {'; '.join(behind)}.{written} If this lasts, no operator handles the "
        "resource: check with `kubectl pdi doctor`."
    )


def _concerns(conditions: Sequence[Condition]) -> Iterator[Concern]:
    """Conditions that are not as they should be: False ones first, then in the order of the table."""
    found = [condition for condition in conditions if _concerns_people(condition)]
    order = {name: number for number, name in enumerate(BY_NAME)}
    found.sort(key=lambda one: (one.status == "Unknown", order.get(one.type, len(order))))
    for one in found:
        since = one.last_transition_time.isoformat().replace("+00:00", "Z")
        yield Concern(one.type, one.status, one.reason, one.message, since)


def _concerns_people(condition: Condition) -> bool:
    if condition.type in _REPEATED:
        return False
    if condition.type == PROGRESSING:
        return condition.reason != ROLLOUT_COMPLETE
    row = BY_NAME.get(condition.type)
    return condition.status != (row.good if row else "True")


def _roles(
    namespace: str, spec: Json, status: Status, pods: Sequence[Json], scalers: Sequence[Json]
) -> Iterator[RoleView]:
    of_role = {(scaler["metadata"].get("labels") or {}).get(names.LABEL_ROLE): scaler for scaler in scalers}
    for role in names.SERVING_ROLES:
        shown = tuple(_pods(namespace, role, status.revision, pods))
        yield _role(role, spec, status, of_role.get(str(role)), shown)


def _role(role: Role, spec: Json, status: Status, scaler: Json | None, pods: tuple[PodLine, ...]) -> RoleView:
    count: RoleStatus = getattr(status.roles, role)
    return RoleView(
        role=role,
        ready=count.ready,
        desired=count.desired,
        note=_without_pods(role, spec, status),
        range=_range((spec.get(role) or {}).get("autoscaling")),
        recommended=None if scaler is None else (scaler.get("spec") or {}).get("replicas"),
        limited="" if scaler is None else _limit(scaler),
        load=count.scaling,
        pods=pods,
        start_seconds=count.start.typical_seconds if count.start else None,
    )


def _without_pods(role: Role, spec: Json, status: Status) -> str:
    if role is not Role.PARAMETER:
        return ""
    if spec.get("mode") == _UNSPLIT:
        return "none: D computes the prompts (spec.mode Aggregated)"
    if status.transfer is not None and status.transfer.path == _SHARING:
        return "in the pods of D (HostLocal)"
    return ""


def _range(autoscaling: Json | None) -> tuple[int, int] | None:
    if not autoscaling:
        return None
    return int(autoscaling.get("minReplicas") or 1), int(autoscaling["maxReplicas"])


def _limit(scaler: Json) -> str:
    conditions = (scaler.get("status") or {}).get("conditions") or ()
    found = next((one for one in conditions if one["type"] == LIMITED and one["status"] == "True"), None)
    return f"{found['reason']}: {plain(found['message'], 500)}" if found else ""


def _pods(namespace: str, role: Role, target: str, bodies: Sequence[Json]) -> Iterator[PodLine]:
    """The pods of a role, those of the target revision first."""
    found = []
    for body in bodies:
        record = pod_record(body)
        if record is not None and record.summary.role is role:
            found.append(_pod(namespace, record.summary, body, target))
    yield from sorted(found, key=lambda pod: (not pod.target, pod.revision, pod.name))


def _pod(namespace: str, summary: PodSummary, body: Json, target: str) -> PodLine:
    unwell = not summary.ready and not summary.terminating
    resource = plain(str(body["metadata"]["labels"][names.LABEL_NAME]), _LONGEST_NAME)
    return PodLine(
        name=plain(summary.name, _LONGEST_NAME),
        revision=summary.revision,
        target=summary.revision == target,
        phase=summary.phase,
        ready=summary.ready,
        ending=summary.terminating,
        restarts=summary.restarts,
        node=plain(str((body.get("spec") or {}).get("nodeName") or ""), _LONGEST_NAME),
        gpus=summary.gpus,
        problem=plain(diagnose(summary, namespace, resource=resource).message, _LONGEST_PROBLEM) if unwell else "",
    )
