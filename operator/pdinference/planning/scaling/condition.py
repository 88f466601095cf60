"""The condition Autoscaling, from the conditions of the HPAs and the metrics that they read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pdinference.api.names import Role
from pdinference.memory.observed import KvCache
from pdinference.planning.condition_changes import ROLE_WORDS, ConditionResult
from pdinference.planning.observed import AutoscalerState, MetricLoad
from pdinference.planning.scaling.limited import JOINT_LIMITS, Limit
from pdinference.planning.scaling.signals import METRICS
from pdinference.planning.scaling.targets import label, signal_of, written
from pdinference.planning.scaling.unknown_load import passes

_NAMED_PODS = 3
_FOLLOWS = "Active"
_BLIND: Final = "The load is unknown, so the replica count does not change"
_OTHER_CAUSES: Final = {
    "AmbiguousSelector": "Another HorizontalPodAutoscaler selects the same pods, so both are inactive; delete it",
    "ScalingDisabled": "The role has no pods, and an HPA does not scale up from zero",
}
"""Why an HPA is inactive although its metrics can be read, by the reason of `ScalingActive`."""
_UNLIMITED: Final[Mapping[Role, Limit]] = MappingProxyType({})
_NOT_SET_UP: Final = ConditionResult("Unknown", "Starting", "The HPA does not exist yet.")
_UNREAD: Final = ConditionResult(
    "Unknown", "Starting", "The operator reads the pods for the first time, and then creates the HPA."
)


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """Metrics of vLLM pods, and problems with the metrics that HPAs read.

    Attributes:
        problem: Why HPAs cannot read the operator's metrics API, as a reason and a message. None when they can, and for
            a resource whose autoscalers read Prometheus.
        silent: Names of the pods of each role whose metrics are missing.
        kv_caches: The KV cache of each pod that has reported its size, by role and pod name.
        baselines: Baseline inter-token latency in seconds, by revision; only where an HPA reads decode load.
        unread: Roles whose HPA reads the operator's metrics, and whose ready pods have not been read yet.
    """

    problem: tuple[str, str] | None = None
    silent: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    kv_caches: Mapping[Role, Mapping[str, KvCache]] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)
    unread: frozenset[Role] = frozenset()


def autoscaling_result(
    hpas: Mapping[Role, AutoscalerState | None], measured: MeasuredLoad, *, limited: Mapping[Role, Limit] = _UNLIMITED
) -> ConditionResult:
    """The condition for all autoscaled roles. The worst role decides status and reason.

    Args:
        hpas: The live HPA of each autoscaled role; None where there is none yet.
        measured: Metrics of the pods.
        limited: Why a role's allocated count differs from the recommended one.
    """
    roles = {
        role: _without_hpa(measured, role) if hpa is None else _role(hpa, measured, role, limited.get(role))
        for role, hpa in hpas.items()
    }
    worst = min(roles.values(), key=_rank)
    message = " ".join(f"{ROLE_WORDS[role]}: {one.message.removesuffix('.')}." for role, one in roles.items())
    return ConditionResult(worst.status, worst.reason, message)


def _rank(one: ConditionResult) -> tuple[int, int]:
    """Sort key; lower is worse: unknown load, then joint limits and maxReplicas, then other limits."""
    limits = (*JOINT_LIMITS, "TooManyReplicas")
    limit = limits.index(one.reason) if one.reason in limits else len(limits)
    return ("False", "Unknown", "True").index(one.status), limit + (one.reason == _FOLLOWS)


def scaling_text(hpa: AutoscalerState) -> str:
    """Load per pod and target of each metric, and the range of replicas, for `kubectl get -o wide`."""
    loads = f"{loads_text(hpa)}; " if hpa.loads else ""
    return f"{loads}{hpa.minimum}-{hpa.maximum} pods"


def loads_text(hpa: AutoscalerState) -> str:
    """Load per pod and target of each metric, without the range."""
    return ", ".join(map(_load, hpa.loads))


def _load(load: MetricLoad) -> str:
    now = None if load.tenths is None else load.tenths * load.target_milli / 10
    if (signal := signal_of(load.metric)) is not None:
        return f"{_label(load)} {'?' if now is None else written(signal, now)}/{written(signal, load.target_milli)}"
    return f"{_label(load)} {'?' if now is None else f'{now / 1000:.4g}'}/{load.target_milli / 1000:.4g}"


def _label(load: MetricLoad) -> str:
    signal = signal_of(load.metric)
    return load.metric if signal is None else label(signal)


def _without_hpa(measured: MeasuredLoad, role: Role) -> ConditionResult:
    return _UNREAD if role in measured.unread else _NOT_SET_UP


def _role(hpa: AutoscalerState, measured: MeasuredLoad, role: Role, limit: Limit | None) -> ConditionResult:
    if measured.problem is not None and not hpa.load_known and reads_operator(hpa):
        return ConditionResult("False", *measured.problem)
    if not hpa.evaluated:
        return ConditionResult("Unknown", "Starting", "Kubernetes has not evaluated the HPA yet.")
    if hpa.able is not None and hpa.able.status == "False":
        return ConditionResult("False", hpa.able.reason, f"The replica count cannot be changed: {hpa.able.message}")
    if hpa.active is not None and hpa.active.status == "False" and passes(hpa.active.message):
        return ConditionResult("Unknown", "Starting", f"The load is not known yet: {_cause(hpa.active.message)}")
    if hpa.active is not None and hpa.active.status == "False":
        message = f"{_OTHER_CAUSES.get(hpa.active.reason, _BLIND)}: {_cause(hpa.active.message)}"
        return ConditionResult("False", hpa.active.reason, message)
    joint = limit is not None and limit.reason in JOINT_LIMITS
    reason, message = (limit.reason, limit.message) if limit is not None and joint else _working(hpa)
    silent = measured.silent.get(role, ()) if reads_operator(hpa) else ()
    return ConditionResult("True", reason, message + _unknown(hpa.loads) + _silence(silent))


def _working(hpa: AutoscalerState) -> tuple[str, str]:
    match limit := hpa.limit:
        case "TooManyReplicas":
            return limit, f"The load requires more pods than maxReplicas ({hpa.maximum}) allows."
        case "TooFewReplicas":
            return limit, f"The load requires fewer pods than minReplicas ({hpa.minimum}) allows."
        case "ScaleUpLimit" | "ScaleDownLimit":
            return limit, "The policies in `behavior` limit how fast the replica count changes."
    if hpa.able is not None and hpa.able.reason == "ScaleDownStabilized":
        return "ScaleDownStabilized", "Fewer pods would suffice now. Scale-down waits for the stabilization window."
    return _FOLLOWS, "The replica count follows the load."


def _cause(message: str) -> str:
    """The error of the metrics server, without the HPA controller's prefix, which names no field of the spec."""
    return message.rpartition("from external metrics API: ")[2].rstrip(".") + "."


def _unknown(loads: Sequence[MetricLoad]) -> str:
    """Lists the metrics that the HPA cannot read. With some of its metrics unknown, an HPA scales up but not down.

    When no metric has a value, the HPA did not read them: the replica count was outside its range.
    """
    unread = [_label(load) for load in loads if load.tenths is None]
    return f" No scale-down while {', '.join(unread)} cannot be read." if 0 < len(unread) < len(loads) else ""


def _silence(pods: tuple[str, ...]) -> str:
    if not pods:
        return ""
    named = ", ".join(pods[:_NAMED_PODS]) + (" and others" if len(pods) > _NAMED_PODS else "")
    return f" No metrics from these pods: {named}. Each is assumed to be at its target, so scale-down is limited."


def reads_operator(scaler: AutoscalerState) -> bool:
    """Whether the operator computes one of its metrics."""
    return any(load.metric in METRICS or signal_of(load.metric) for load in scaler.loads)
