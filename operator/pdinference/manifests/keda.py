"""Triggers of a ScaledObject, for the operator's signals and for metrics of the user."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from pdinference.api import names
from pdinference.api.hpa_metrics import METRICS, ContainerResource, External, ExternalMetric, Resource, ResourceMetric
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.partial import path
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.autoscaling import Autoscaling
from pdinference.api.validation import InvalidResourceError, Problem
from pdinference.api.words import sentence
from pdinference.manifests.settings import KedaSettings
from pdinference.planning.scaling.gauges import UnsafeNameError, gauge_query, selected_role, sum_query
from pdinference.planning.scaling.signals import METRICS as OPERATOR_METRICS
from pdinference.planning.scaling.targets import label, targets_milli

Trigger = dict[str, Any]


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
    type_ = metric.get("type")
    model = METRICS.get(type_) if isinstance(type_, str) else None
    if model is None:
        raise _refused(
            f"{field}.type",
            f"KEDA supports metrics of the types {', '.join(METRICS)}. Use one of these, or set "
            "spec.autoscaling.source to Builtin or PrometheusAdapter.",
        )
    try:
        read = model.model_validate(dict(metric))
    except ValidationError as error:
        raise InvalidResourceError(
            tuple(
                Problem(f"{field}.{path(details['loc'])}", sentence(details))
                for details in error.errors(include_url=False)
            )
        ) from None
    if isinstance(read, ExternalMetric):
        return _external(read.external, f"{field}.external.metric", namespace, operator_namespace)
    return _resource(read.resource if isinstance(read, ResourceMetric) else read.container_resource)


def _resource(source: Resource) -> Trigger:
    container = {"containerName": source.container} if isinstance(source, ContainerResource) else {}
    return {
        "type": source.name,
        "name": source.name,
        "metricType": source.target.type,
        "metadata": {"value": source.target.amount, **container},
    }


def _external(source: External, field: str, namespace: str, operator_namespace: str) -> Trigger:
    metric, labels = source.metric.name, source.metric.selector.match_labels
    try:
        if metric not in OPERATOR_METRICS:
            query = sum_query(metric, labels, namespace)
        elif (selected := selected_role(labels)) is not None:
            query = gauge_query(metric, namespace, *selected, operator_namespace)
        else:
            raise _refused(
                f"{field}.selector",
                f"Select one role of one PDInference with matchLabels {names.LABEL_NAME} and {names.LABEL_ROLE}.",
            )
    except UnsafeNameError as error:
        raise _refused(field, str(error)) from None
    return _prometheus(metric, query, source.target.type, float(quantity(source.target.amount) or 0))


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
