"""What the status says about autoscaling: the HPAs' own verdicts, in plain words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pdinference.api.names import Role
from pdinference.planning.conditions import ROLE_WORDS, ConditionResult
from pdinference.planning.observed import AutoscalerState, KvCache, Load
from pdinference.planning.scaling.limited import JOINT_LIMITS, Limit
from pdinference.planning.scaling.signals import METRICS
from pdinference.planning.scaling.targets import label, signal_of, written

_NAMED_PODS = 3
_FOLLOWS = "Active"
_BLIND: Final = "The load is not known, so the number of pods stays as it is"
_OTHER_CAUSES: Final = {
    "AmbiguousSelector": "Another HorizontalPodAutoscaler scales the same pods, so neither does; delete it",
    "ScalingDisabled": "There are no pods, and an HPA starts none",
}
"""What it means that an HPA is not active, where that says nothing of the load."""
_UNLIMITED: Final[Mapping[Role, Limit]] = MappingProxyType({})
_NOT_SET_UP: Final = ConditionResult("Unknown", "Starting", "Not set up yet.")


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """What vLLM's metrics say, and what is known of the load that HPAs go by.

    Attributes:
        problem: Why the operator's metrics API does not reach HPAs, as a reason and a message; None when it does, and
            for a resource whose autoscalers read the load from Prometheus.
        silent: Names of the pods of each role that should answer and do not.
        kv_caches: The KV cache of each pod of a role that has told its size.
        baselines: The shortest time that a D pod of each revision took for a token, as far as HPAs go by that.
    """

    problem: tuple[str, str] | None = None
    silent: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    kv_caches: Mapping[Role, Mapping[str, KvCache]] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)


def autoscaling_result(
    hpas: Mapping[Role, AutoscalerState | None], measured: MeasuredLoad, *, limited: Mapping[Role, Limit] = _UNLIMITED
) -> ConditionResult:
    """The condition over all autoscaled roles: as bad as the worst of them.

    Args:
        hpas: The live HPA of each autoscaled role; None where there is none yet.
        measured: What is known of the load.
        limited: Why a role has another count than the recommended one.
    """
    roles = {
        role: _NOT_SET_UP if hpa is None else _role(hpa, measured, role, limited.get(role))
        for role, hpa in hpas.items()
    }
    worst = min(roles.values(), key=_rank)
    message = " ".join(f"{ROLE_WORDS[role]}: {one.message.removesuffix('.')}." for role, one in roles.items())
    return ConditionResult(worst.status, worst.reason, message)


def _rank(one: ConditionResult) -> tuple[int, int]:
    """Lower is worse: a load that is not followed, one that wants more than there may be, any other limit."""
    limits = (*JOINT_LIMITS, "TooManyReplicas")
    limit = limits.index(one.reason) if one.reason in limits else len(limits)
    return ("False", "Unknown", "True").index(one.status), limit + (one.reason == _FOLLOWS)


def scaling_text(hpa: AutoscalerState) -> str:
    """Load of a pod/target for each metric, as far as Kubernetes tells, and the range, for printing."""
    loads = f"{loads_text(hpa)}; " if hpa.loads else ""
    return f"{loads}{hpa.minimum}-{hpa.maximum} pods"


def loads_text(hpa: AutoscalerState) -> str:
    """The loads alone."""
    return ", ".join(map(_load, hpa.loads))


def _load(load: Load) -> str:
    now = None if load.tenths is None else load.tenths * load.target_milli / 10
    if (signal := signal_of(load.metric)) is not None:
        return f"{_label(load)} {'?' if now is None else written(signal, now)}/{written(signal, load.target_milli)}"
    return f"{_label(load)} {'?' if now is None else f'{now / 1000:.4g}'}/{load.target_milli / 1000:.4g}"


def _label(load: Load) -> str:
    signal = signal_of(load.metric)
    return load.metric if signal is None else label(signal)


def _role(hpa: AutoscalerState, measured: MeasuredLoad, role: Role, limit: Limit | None) -> ConditionResult:
    if measured.problem is not None and not hpa.load_known and reads_operator(hpa):
        return ConditionResult("False", *measured.problem)
    if not hpa.evaluated:
        return ConditionResult("Unknown", "Starting", "Kubernetes has not looked at the load yet.")
    if hpa.able is not None and hpa.able.status == "False":
        return ConditionResult("False", hpa.able.reason, f"The number of pods cannot be changed: {hpa.able.message}")
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
            return limit, f"The load asks for more pods than maxReplicas ({hpa.maximum}) allows."
        case "TooFewReplicas":
            return limit, f"The load asks for fewer pods than minReplicas ({hpa.minimum}) allows."
        case "ScaleUpLimit" | "ScaleDownLimit":
            return limit, "The number of pods changes as fast as behavior allows."
    if hpa.able is not None and hpa.able.reason == "ScaleDownStabilized":
        return "ScaleDownStabilized", "Fewer pods would do for the moment; they go when that lasts."
    return _FOLLOWS, "The number of pods follows the load."


def _cause(message: str) -> str:
    """What the server of the metrics said, without the HPA controller's preface: it names no field of ours."""
    return message.rpartition("from external metrics API: ")[2].rstrip(".") + "."


def _unknown(loads: Sequence[Load]) -> str:
    """Of several metrics an HPA goes by those that it can read, but takes no pod away.

    It tells none of them where it looked at none, because there were more or fewer pods than its range allows.
    """
    unread = [_label(load) for load in loads if load.tenths is None]
    return f" No pod goes as long as {', '.join(unread)} cannot be read." if 0 < len(unread) < len(loads) else ""


def _silence(pods: tuple[str, ...]) -> str:
    if not pods:
        return ""
    named = ", ".join(pods[:_NAMED_PODS]) + (" and others" if len(pods) > _NAMED_PODS else "")
    return f" These pods do not tell their load, so no pod goes on their account, nor comes: {named}."


def reads_operator(scaler: AutoscalerState) -> bool:
    """Whether one of its metrics is computed by the operator."""
    return any(load.metric in METRICS or signal_of(load.metric) for load in scaler.loads)
