"""State of a HorizontalPodAutoscaler or a KEDA ScaledObject.

Tests: tests/cluster/test_autoscalers.py, tests/inference/test_sources.py
"""

from collections.abc import Mapping
from typing import Any, Final

from pdinference.api.quantities import quantity
from pdinference.planning.observed import AutoscalerState, MetricLoad, ObservedCondition

Json = Mapping[str, Any]

_KEDA_MAXIMUM: Final = 100
"""KEDA's default for maxReplicaCount of a ScaledObject."""


def autoscaler_state(body: Json) -> AutoscalerState:
    """State of an HPA.

    Loads are rounded to a tenth of their target. An HPA updates its status several times a minute, and small changes
    must not cause updates of the PDInference's status.
    """
    spec, status = body["spec"], body.get("status") or {}
    current = {_name(metric): metric for metric in status.get("currentMetrics") or () if metric.get("type")}
    return AutoscalerState(
        minimum=spec.get("minReplicas", 1),
        maximum=spec["maxReplicas"],
        evaluated=bool(status.get("conditions")),
        desired=status.get("desiredReplicas") or None,
        loads=tuple(_load(metric, current.get(_name(metric), {})) for metric in spec.get("metrics") or ()),
        able=_verdict(status, "AbleToScale"),
        active=_verdict(status, "ScalingActive"),
        limited=_verdict(status, "ScalingLimited"),
    )


def scaled_object_state(body: Json) -> AutoscalerState:
    """State of a ScaledObject: whether KEDA accepts it. The HPA that KEDA creates for it has all other facts."""
    spec = body["spec"]
    ready = _verdict(body.get("status") or {}, "Ready")
    return AutoscalerState(
        minimum=spec.get("minReplicaCount", 0),
        maximum=spec.get("maxReplicaCount", _KEDA_MAXIMUM),
        evaluated=ready is not None and ready.status != "Unknown",
        active=ready,
        loads=tuple(map(_trigger_load, spec["triggers"])),
    )


def _trigger_load(trigger: Json) -> MetricLoad:
    threshold = quantity((trigger.get("metadata") or {}).get("threshold", ""))
    return MetricLoad(
        str(trigger.get("name", trigger["type"])),
        None,
        1000 * float(threshold or 0),
        averaged=trigger.get("metricType", "AverageValue") == "AverageValue",
    )


def _load(wanted: Json, current: Json) -> MetricLoad:
    target = _source(wanted).get("target") or {}
    now = _source(current).get("current") or {}
    aim, value = _amount(target), _amount(now)
    tenths = round(10 * value / aim) if aim and value is not None else None
    return MetricLoad(_name(wanted), tenths, 1000 * (aim or 0.0), averaged=target.get("type") != "Value")


def _name(metric: Json) -> str:
    source = _source(metric)
    return str((source.get("metric") or source).get("name", metric.get("type", "")))


def _source(metric: Json) -> Json:
    """The member named after the type: `external` for External."""
    kind = str(metric.get("type", ""))
    found: Json = metric.get(kind[:1].lower() + kind[1:]) or {}
    return found


def _amount(value: Json) -> float | None:
    for member in ("averageValue", "averageUtilization", "value"):
        if member in value:
            amount = quantity(value[member])
            # Without pods, an HPA reports the smallest integer as their average.
            return None if amount is None or amount < 0 else float(amount)
    return None


def _verdict(status: Json, type_: str) -> ObservedCondition | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == type_:
            holds = condition["status"] == "True"
            message = "" if holds else condition.get("message", "")
            return ObservedCondition(condition["status"], condition.get("reason", ""), message)
    return None
