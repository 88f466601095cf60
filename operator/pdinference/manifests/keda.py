"""Triggers of a ScaledObject, for the operator's signals and for metrics of the user.

Tests: tests/manifests/test_sources.py
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdinference.api import names
from pdinference.api.hpa_metrics import ContainerResource, External, Metric, Resource, Target
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.autoscaling import Autoscaling
from pdinference.api.validation import InvalidResourceError, Problem, part
from pdinference.manifests.settings import KedaSettings
from pdinference.planning.scaling.gauges import UnsafeNameError, gauge_query, selected_role, sum_query
from pdinference.planning.scaling.signals import METRICS as OPERATOR_METRICS
from pdinference.planning.scaling.targets import label, targets_milli

Trigger = dict[str, Any]
_TYPES: Final = ("Resource", "ContainerResource", "External")
_OF_PODS: Final = ("cpu", "memory")
_AMOUNT_OF_PODS: Final = {"Utilization": "averageUtilization", "AverageValue": "averageValue"}
_AMOUNT_OF_OTHERS: Final = {"AverageValue": "averageValue", "Value": "value"}
"""Types of targets that KEDA's triggers have, and the member that each reads."""


def triggers(
    resource: PDInference, role: Role, scaling: Autoscaling, keda: KedaSettings, operator_namespace: str
) -> list[Trigger]:
    """Triggers of a role.

    Raises:
        InvalidResourceError: KEDA has no trigger for one of the metrics.
    """
    place = resource.metadata
    found = [
        _prometheus(
            label(signal),
            gauge_query(signal, place.namespace, place.name, role, operator_namespace),
            "AverageValue",
            milli / 1000,
        )
        for signal, milli in targets_milli(role, scaling).items()
    ]
    found += (
        _trigger(metric, _field(role, index), place.namespace, operator_namespace)
        for index, metric in enumerate(scaling.metrics)
    )
    names_used = [trigger["name"] for trigger in found]
    for index, trigger in enumerate(found):
        if trigger["name"] in names_used[:index]:  # KEDA rejects two triggers with the same name
            trigger["name"] += f"-{index}"
    return [_with_server(trigger, keda) if trigger["type"] == "prometheus" else trigger for trigger in found]


def metric_problems(resource: PDInference, operator_namespace: str) -> Iterator[Problem]:
    """Metrics of the user for which KEDA has no trigger."""
    for role in ENGINE_ROLES:
        scaling = resource.spec.of(role).autoscaling
        for index, metric in enumerate(scaling.metrics if scaling is not None else ()):
            try:
                _trigger(metric, _field(role, index), resource.metadata.namespace, operator_namespace)
            except InvalidResourceError as error:
                yield from error.problems


def _field(role: Role, index: int) -> str:
    return f"spec.{role}.autoscaling.metrics[{index}]"


def _trigger(metric: Mapping[str, Any], field: str, namespace: str, operator_namespace: str) -> Trigger:
    if metric.get("type") not in _TYPES:
        raise _refused(
            f"{field}.type",
            f"KEDA supports metrics of the types {', '.join(_TYPES)}. Use one of these, or set "
            "spec.autoscaling.source to Builtin or PrometheusAdapter.",
        )
    read = part(Metric, metric, field)
    if read.external is not None:
        return _external(read.external, f"{field}.external", namespace, operator_namespace)
    if read.container_resource is not None:
        return _resource(read.container_resource, f"{field}.containerResource")
    if read.resource is not None:
        return _resource(read.resource, f"{field}.resource")
    raise AssertionError("unreachable: the type is one of the three")


def _amount(target: Target, field: str, members: Mapping[str, str]) -> str:
    """The amount that belongs to the type of a target."""
    if (member := members.get(target.type)) is None:
        raise _refused(f"{field}.target.type", f"For KEDA, write {' or '.join(members)} here, not {target.type}.")
    if (amount := target.model_dump(by_alias=True).get(member)) is None:
        raise _refused(f"{field}.target", f"For KEDA, a target of type {target.type} needs {member}.")
    return str(amount)


def _resource(source: Resource | ContainerResource, field: str) -> Trigger:
    if source.name not in _OF_PODS:
        raise _refused(f"{field}.name", f"KEDA reads {' and '.join(_OF_PODS)} of pods. Write one of them.")
    container = {"containerName": source.container} if isinstance(source, ContainerResource) else {}
    return {
        "type": source.name,
        "name": source.name,
        "metricType": source.target.type,
        "metadata": {"value": _amount(source.target, field, _AMOUNT_OF_PODS), **container},
    }


def _external(source: External, field: str, namespace: str, operator_namespace: str) -> Trigger:
    metric, selector = source.metric.name, source.metric.selector
    if selector.match_expressions:
        raise _refused(f"{field}.metric.selector.matchExpressions", "For KEDA, select with matchLabels.")
    try:
        if metric not in OPERATOR_METRICS:
            query = sum_query(metric, selector.match_labels, namespace)
        elif (selected := selected_role(selector.match_labels)) is not None:
            query = gauge_query(metric, namespace, *selected, operator_namespace)
        else:
            raise _refused(
                f"{field}.metric.selector",
                f"Select one role of one PDInference with matchLabels {names.LABEL_NAME} and {names.LABEL_ROLE}.",
            )
    except UnsafeNameError as error:
        raise _refused(f"{field}.metric", str(error)) from None
    amount = quantity(_amount(source.target, field, _AMOUNT_OF_OTHERS)) or 0
    return _prometheus(metric, query, source.target.type, float(amount))


def _prometheus(name: str, query: str, metric_type: str, threshold: float) -> Trigger:
    # With ignoreNullValues, KEDA takes an empty result for a load of 0. Without it, the HPA keeps the replica count.
    metadata = {"query": query, "threshold": f"{threshold:.10g}", "ignoreNullValues": "false"}
    return {"type": "prometheus", "name": name, "metricType": metric_type, "metadata": metadata}


def _with_server(trigger: Trigger, keda: KedaSettings) -> Trigger:
    modes = {"authModes": ",".join(keda.auth_modes)} if keda.auth_modes else {}
    metadata = {"serverAddress": keda.prometheus, **trigger["metadata"], **modes}
    if keda.authentication is None:
        return {**trigger, "metadata": metadata}
    kind, name = keda.authentication
    return {**trigger, "metadata": metadata, "authenticationRef": {"kind": kind, "name": name}}


def _refused(field: str, message: str) -> InvalidResourceError:
    return InvalidResourceError((Problem(field, message),))
