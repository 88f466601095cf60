"""The decision of a reconcile: a pure function of one snapshot, so that it can be printed, repeated and simulated.

A plan may be executed in part, or not at all: the next snapshot shows what remains.

Tests: tests/inference/test_reconcile.py, tests/inference/test_scaling.py, tests/inference/test_sleep.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.cluster.kinds import AUTOSCALER, DISRUPTION_BUDGET, NETWORK_POLICY, SERVICE, STATEFUL_SET, ChildKey
from pdinference.cluster.state.records import ChildRecord
from pdinference.cluster.verdict import Verdict, has_replicas, judge
from pdinference.inference.plan import Plan
from pdinference.inference.repairs import decided_repair
from pdinference.inference.scale_targets import corrections, manifest_counts, recommended, reports
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.model_report import model_status
from pdinference.planning.rollout import RolloutPlan, plan_rollout
from pdinference.planning.scaling.allocation import Allocation, allocate
from pdinference.planning.scaling.sleep_and_wake import seconds_until_sleep, sleeps

_NEEDED_BY_PODS: Final = (SERVICE, NETWORK_POLICY, DISRUPTION_BUDGET)
"""Kinds of the objects of a role that its pods need until their end."""


def decide(snapshot: Snapshot) -> Plan:
    """The plan for a snapshot."""
    desired = snapshot.desired
    model = snapshot.model
    awaits_model = model is not None and model.awaited and not model.done
    # The old revision keeps serving until the new one has its model.
    recreate = desired.scale.recreates and not awaits_model
    rollout = plan_rollout(
        target=desired.revision,
        serving=snapshot.previous.serving_revision,
        router=snapshot.router,
        pods=snapshot.pods,
        recreate=recreate,
    )
    served = rollout.serving == desired.revision
    asleep = _sleeps(snapshot)
    counts = recommended(snapshot)
    allocation = allocate(
        replace(desired.scale, recreates=recreate),
        snapshot.fleet,
        counts,
        target=desired.revision,
        serving=_serving(snapshot, rollout),
        asleep=asleep,
    )
    scale_targets = manifest_counts(snapshot, allocation, counts)
    replicas = _replicas(snapshot, allocation) | scale_targets
    verdicts = dict(_verdicts(snapshot, replicas, engines=not (allocation.blocked or awaits_model)))
    return Plan(
        rollout=rollout,
        allocation=allocation,
        asleep=asleep,
        awaits_model=awaits_model,
        apply={key: verdict for key, verdict in verdicts.items() if verdict.needs_manifest},
        replicas=replicas,
        scale={key: replicas[key] for key, verdict in verdicts.items() if verdict is Verdict.SCALE},
        recommend=corrections(snapshot, scale_targets, asleep=asleep),
        report=reports(snapshot, allocation, rollout),
        delete=tuple(_unneeded(snapshot, rollout)),
        remember=(snapshot.history_due or (served and snapshot.unproven)) and _belongs_in_history(snapshot, rollout),
        served=served,
        repair=decided_repair(snapshot, rollout, replicas),
        requeue_after=_seconds_to_sleep(snapshot, asleep=asleep),
    )


def _belongs_in_history(snapshot: Snapshot, rollout: RolloutPlan) -> bool:
    """Whether the stored spec is in effect, and valid also with the facts of the model that a Job reports later.

    A spec whose revision serves already is kept before that, so that no earlier one replaces it.
    """
    spec, model, reported = snapshot.spec, snapshot.model, snapshot.previous.model
    examined = model is None or (model.done and model_status(model, reported) == reported)
    return not (spec.invalid or spec.withheld) and (examined or rollout.serving == snapshot.desired.revision)


def _serving(snapshot: Snapshot, rollout: RolloutPlan) -> str:
    """The revision that requests go to; the target if the router has zero replicas."""
    if rollout.serving:
        return rollout.serving
    return "" if snapshot.desired.replicas[Role.ROUTER] > 0 else snapshot.desired.revision


def _sleeps(snapshot: Snapshot) -> bool:
    """Whether P and D scale to zero, or stay there, because no requests arrived."""
    after, router = snapshot.desired.sleeps_after, snapshot.router
    if after is None or router is None or router.revision != snapshot.desired.revision:
        return False
    empty, activity = snapshot.empty, snapshot.observations.activity
    # Scaling the router down starts no router pod, so it does not wake P and D.
    waking = router.observed and not 0 < router.replicas == router.updated == router.available
    return sleeps(after, asleep=empty, settled=not waking if empty else router.complete, activity=activity)


def _seconds_to_sleep(snapshot: Snapshot, *, asleep: bool) -> float | None:
    """Seconds until P and D may scale to zero; None if they do not, or have no pods."""
    after, activity = snapshot.desired.sleeps_after, snapshot.observations.activity
    return None if after is None or asleep or snapshot.empty else seconds_until_sleep(after, activity)


def _replicas(snapshot: Snapshot, allocation: Allocation) -> dict[ChildKey, int]:
    """The replica count of each workload; worker nodes have the count of their role."""
    target = snapshot.desired.revision
    wanted = {key: allocation.replicas[role][target] for key, role in snapshot.desired.engines.items()}
    for key, workload in snapshot.workloads():
        if workload.role in ENGINE_ROLES and workload.revision in allocation.replicas[workload.role]:
            wanted[key] = allocation.replicas[workload.role][workload.revision]
        elif workload.role is Role.ROUTER:
            wanted[key] = snapshot.desired.replicas[Role.ROUTER]
    return wanted


def _verdicts(
    snapshot: Snapshot, replicas: Mapping[ChildKey, int], *, engines: bool
) -> Iterator[tuple[ChildKey, Verdict]]:
    """Decide on each desired child, and on the replica counts of the serving revision.

    Args:
        snapshot: The observed state.
        replicas: The replica count of each workload.
        engines: Whether workloads of P and D may be created, because their model and GPUs are available.
    """
    desired, resource = snapshot.desired, snapshot.resource
    # An HPA that cannot read its metrics emits a warning for each metric, several times in its first seconds.
    unread = {snapshot.role_key(AUTOSCALER.name, role) for role in snapshot.observations.load.unread}
    for key, fingerprint in desired.fingerprints.items():
        record = snapshot.children.get(key)
        verdict = judge(record, resource.owner, resource.uid, fingerprint, replicas.get(key))
        withheld = (key in desired.engines and not engines) or key in unread
        if verdict is not Verdict.LEAVE and not (verdict is Verdict.CREATE and withheld):
            yield key, verdict
    for key, count in replicas.items():
        record = snapshot.own(key)
        if key not in desired.fingerprints and record is not None and not has_replicas(record, count):
            yield key, Verdict.SCALE


def _unneeded(snapshot: Snapshot, rollout: RolloutPlan) -> Iterator[ChildRecord]:
    """Children that are no longer rendered, except those of revisions that may still serve."""
    kept = _of_running_pods(snapshot)
    for child in snapshot.owned():
        if child.key in snapshot.desired.fingerprints or child.deleting:
            continue
        deletable = rollout.may_be_deleted(child.revision) if child.revision else child.key not in kept
        if deletable:
            yield child


def _of_running_pods(snapshot: Snapshot) -> set[ChildKey]:
    """Objects that pods of a role need, although the mode does not have that role any more."""
    workloads = list(snapshot.workloads())
    left = {workload.role for _, workload in workloads} | {pod.role for pod in snapshot.pods if not pod.gone}
    kept = {snapshot.role_key(kind.name, role) for role in ENGINE_ROLES if role in left for kind in _NEEDED_BY_PODS}
    named = {workload.role for _, workload in workloads if workload.kind == STATEFUL_SET.name}
    # D on one node has no pods with names, so it needs no Service.
    return kept if Role.DECODE in named else kept - {snapshot.role_key(SERVICE.name, Role.DECODE)}
