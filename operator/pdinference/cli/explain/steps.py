"""Next writes of the operator in the order of execution, and blocked changes, each with the reason.

Tests: tests/cli/test_explain_any_moment.py, tests/cli/test_explain.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.plain_text import first_of, plain
from pdinference.cli.explain.moment import Moment
from pdinference.cli.history.changes import FieldChange
from pdinference.cluster.apply import wave_of
from pdinference.cluster.drift import difference
from pdinference.cluster.history.entry import entry_name
from pdinference.cluster.kinds import CONTROLLER_REVISION, ChildKey
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.prerequisites import prerequisites
from pdinference.cluster.state.records import ChildRecord, comparable
from pdinference.cluster.verdict import Verdict
from pdinference.planning.model_report import model_diagnosis

_AFTER_APPLY: Final = 10
_COUNTS, _STATUS, _DELETE, _HISTORY = range(_AFTER_APPLY, _AFTER_APPLY + 4)
_LONGEST_REASON: Final = 1000
_NEEDED: Final = "it is applied only after {}"


@dataclass(frozen=True, slots=True)
class Step:
    """A write, or a blocked change.

    Attributes:
        order: Wave of the write: writes of one wave are concurrent, after all lower waves. 0 for blocked changes.
        action: `create`, `apply`, `scale`, `report`, `delete` or `record`; `hold` or `keep` for blocked changes.
    """

    order: int
    action: str
    kind: str
    name: str
    reason: str


def writes(moment: Moment) -> list[Step]:
    """Every write that the operator would make now."""
    found = [*_applied(moment), *_counts(moment), *_reports(moment), *_deleted(moment), *_recorded(moment)]
    numbers = {order: number for number, order in enumerate(sorted({step.order for step in found}), 1)}
    return [
        Step(numbers[step.order], step.action, step.kind, step.name, step.reason)
        for step in sorted(found, key=lambda step: step.order)
    ]


def held_back(moment: Moment) -> list[Step]:
    """Changes that the spec requires, but that are blocked for now."""
    return [*_refused(moment), *_withheld(moment), *_blocked(moment), *_kept(moment)]


def _step(order: int, action: str, key: ChildKey, reason: str) -> Step:
    return Step(order, action, key.kind, plain(key.name, 253), plain(reason, _LONGEST_REASON))


def _applied(moment: Moment) -> Iterator[Step]:
    held = {(step.kind, step.name) for step in (*_refused(moment), *_withheld(moment))}
    for key, verdict in moment.plan.apply.items():
        if (key.kind, key.name) in held:
            continue
        action = "create" if verdict is Verdict.CREATE else "apply"
        count = moment.plan.replicas.get(key)
        replicas = "" if count is None else f"; {_pods(count)}"
        yield _step(wave_of(key), action, key, f"{_why(moment, key, verdict)}{replicas}")


def _why(moment: Moment, key: ChildKey, verdict: Verdict) -> str:
    if verdict is Verdict.CREATE:
        return "it does not exist"
    found = difference(moment.live.get(key), comparable(key.kind, moment.children[key].manifest))
    what = "the manifest changed" if verdict is Verdict.APPLY else "the live object was changed"
    if found is None:
        return f"{what}: the live object has all of it, and the hash in its annotation is of another one"
    return f"{what}: {FieldChange(*found)}"


def _counts(moment: Moment) -> Iterator[Step]:
    snapshot, plan = moment.snapshot, moment.plan
    for key, count in plan.scale.items():
        workload = snapshot.children[key].workload
        if workload is not None:
            reason = f"{workload.desired} -> {_pods(count)}: {_why_count(moment, workload.role)}"
            yield _step(_COUNTS, "scale", key, reason)
    for key, count in plan.recommend.items():
        scaler = snapshot.children[key].scaler
        before = scaler.recommended if scaler is not None else None
        why = "the resource is asleep, and wakes with minReplicas" if plan.asleep else "spec.replicas is missing"
        yield _step(_COUNTS, "scale", key, f"recommended count {before} -> {count}: {why}")


def _why_count(moment: Moment, role: Role) -> str:
    limit = moment.plan.allocation.limited.get(role)
    if limit is not None:
        return limit.message
    if role in moment.snapshot.desired.autoscaled:
        return f"recommended by PDScaler {names.role_object(moment.snapshot.owner.name, role)}"
    return f"spec.{role}.replicas"


def _reports(moment: Moment) -> Iterator[Step]:
    for key, status in moment.plan.report.items():
        scaler = moment.snapshot.children[key].scaler
        if scaler is None:
            continue
        limited = next((f"{c.status}/{c.reason}" for c in scaler.conditions), "none")
        before = {"replicas": scaler.replicas, "revision": scaler.revision, "Limited": limited}
        after = {**status, "Limited": _limited(status)}
        changed = [str(FieldChange(name, old, after[name])) for name, old in before.items() if old != after[name]]
        yield _step(_STATUS, "report", key, f"status: {', '.join(changed) or 'selector, message or latency'}")


def _limited(status: Mapping[str, Any]) -> str:
    return next((f"{condition['status']}/{condition['reason']}" for condition in status["conditions"]), "none")


def _deleted(moment: Moment) -> Iterator[Step]:
    recreates = moment.snapshot.desired.scale.recreates
    for record in moment.plan.delete:
        if not record.revision:
            why = "the spec no longer has it"
        elif recreates:
            why = f"revision {record.revision} is not the target, and rollout.strategy is Recreate"
        else:
            why = f"revision {record.revision} serves no requests any more"
        yield _step(_DELETE, "delete", record.key, why)


def _recorded(moment: Moment) -> Iterator[Step]:
    if not moment.plan.remember:
        return
    resource = moment.snapshot.resource
    key = ChildKey(CONTROLLER_REVISION.name, resource.owner.namespace, entry_name(resource))
    if moment.snapshot.history_due:
        why = "the newest entry of the history is not the stored spec, or there are too many entries"
        yield _step(_HISTORY, "record", key, why)
    if moment.plan.served and moment.snapshot.unproven:
        yield _step(_HISTORY, "mark", key, "requests go to the stored spec, which its entry does not say yet")


def _refused(moment: Moment) -> Iterator[Step]:
    """Objects of other owners with the name of a child."""
    for key, verdict in moment.plan.apply.items():
        if verdict is Verdict.FOREIGN:
            outcome = Outcome()
            outcome.refused(key, moment.snapshot.owner, passing=False)
            yield _step(0, "hold", key, outcome.failures[0].message)
        elif verdict is Verdict.WAIT:
            record = moment.snapshot.children[key]
            gone = "is being deleted" if record.deleting else "belongs to an earlier resource of this name"
            yield _step(0, "hold", key, f"an object in its place {gone}; it is applied when that is gone")


def _withheld(moment: Moment) -> Iterator[Step]:
    """Children whose prerequisites are blocked."""
    needs = prerequisites((key, moment.children[key].manifest) for key in moment.plan.apply)
    pending = {key for key, verdict in moment.plan.apply.items() if verdict in {Verdict.FOREIGN, Verdict.WAIT}}
    for key in sorted(moment.plan.apply.keys() - pending, key=wave_of):
        if causes := pending & needs.get(key, frozenset()):
            pending.add(key)
            yield _step(0, "hold", key, _NEEDED.format(" and ".join(sorted(f"{c.kind} {c.name}" for c in causes))))


def _blocked(moment: Moment) -> Iterator[Step]:
    """Workloads of P and D that cannot be created yet."""
    snapshot, plan = moment.snapshot, moment.plan
    reasons = [plan.allocation.blocked] if plan.allocation.blocked else []
    if plan.awaits_model and (model := snapshot.model) is not None:
        pods = [pod for pod in snapshot.pods if pod.role is Role.MODEL and not pod.gone]
        diagnosis = model_diagnosis(model, pods, snapshot.owner.namespace)
        reasons.insert(0, f"P and D start when the model is there. {diagnosis.message}")
    for key in snapshot.desired.engines if reasons else ():
        if snapshot.children.get(key) is None:
            yield _step(0, "hold", key, " ".join(reasons))


def _kept(moment: Moment) -> Iterator[Step]:
    """Earlier revisions that stay."""
    snapshot, rollout = moment.snapshot, moment.plan.rollout
    for child in snapshot.owned():
        earlier = child.revision and child.key not in snapshot.desired.fingerprints and not child.deleting
        if earlier and not rollout.may_be_deleted(child.revision):
            yield _step(0, "keep", child.key, _why_kept(moment, child))


def _why_kept(moment: Moment, child: ChildRecord) -> str:
    snapshot, rollout = moment.snapshot, moment.plan.rollout
    live = (pod for pod in snapshot.pods if pod.role is Role.ROUTER and not pod.gone)
    routers = [pod for pod in live if pod.revision == child.revision]
    if routers:
        shown = first_of([plain(pod.name, 253) for pod in routers], 3)
        return f"revision {child.revision} is kept: requests still reach it from router pods {shown}"
    if rollout.serving == child.revision:
        return f"revision {child.revision} is kept: it serves until a router pod of the target revision is ready"
    return f"revision {child.revision} is kept: it is not known which revision serves requests"


def _pods(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"
