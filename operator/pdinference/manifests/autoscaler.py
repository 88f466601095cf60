"""Autoscalers of a role: a HorizontalPodAutoscaler, or a ScaledObject, from which KEDA creates one."""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference, RoleSpec
from pdinference.api.v1alpha1.autoscaling import Autoscaling
from pdinference.manifests.children import child
from pdinference.manifests.keda import triggers
from pdinference.manifests.settings import KedaSettings, RenderSettings
from pdinference.manifests.templates import Manifest
from pdinference.planning.scaling.gauges import gauge_labels, selected_role
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.signals import METRICS
from pdinference.planning.scaling.targets import targets_milli


def autoscalers(resource: PDInference, settings: RenderSettings) -> dict[Role, Manifest]:
    """The autoscaler of each autoscaled role, which writes to the role's PDScaler."""
    if resource.spec.metrics_source == "KEDA" and settings.keda is not None:
        return _scaled_objects(resource, settings.keda, settings.operator_namespace)
    name = resource.metadata.name
    adapter = resource.spec.metrics_source == "PrometheusAdapter"
    return {
        role: child(
            resource,
            role,
            "autoscaler",
            metrics_selector=gauge_labels(name, role) if adapter else names.role_selector(name, role),
            targets=[
                {"metric": str(signal), "average": _quantity(milli)}
                for signal, milli in targets_milli(role, scaling).items()
            ],
            metrics=[_for_adapter(metric) for metric in scaling.metrics] if adapter else scaling.metrics,
            **_bounds(resource, role, scaling),
        )
        for role, scaling in _autoscaled(resource)
    }


def scalers(resource: PDInference) -> dict[Role, Manifest]:
    """The PDScaler of each role that is autoscaled, without a count: what its autoscaler scales."""
    return {role: child(resource, role, "scaler") for role, _ in _autoscaled(resource)}


def _autoscaled(resource: PDInference) -> Iterator[tuple[Role, Autoscaling]]:
    """The autoscaled roles with their settings."""
    for role in resource.spec.workload_roles:
        spec: RoleSpec = resource.spec.of(role)
        if spec.autoscaling is not None and spec.autoscaled:
            yield role, spec.autoscaling


def _scaled_objects(resource: PDInference, keda: KedaSettings, operator_namespace: str) -> dict[Role, Manifest]:
    return {
        role: child(
            resource,
            role,
            "scaled-object",
            autoscaler=names.keda_autoscaler(resource.metadata.name, role),
            triggers=triggers(resource, role, scaling, keda, operator_namespace),
            **_bounds(resource, role, scaling),
        )
        for role, scaling in _autoscaled(resource)
    }


def _for_adapter(metric: Mapping[str, Any]) -> Mapping[str, Any]:
    """A user's metric. For a metric of the operator, the selector uses the labels of its gauges."""
    try:
        identifier = metric["external"]["metric"]
        selected = selected_role(identifier["selector"]["matchLabels"])
        if identifier["name"] not in METRICS or selected is None:
            return metric
    except (KeyError, TypeError, AttributeError):  # checks/autoscalers.py reports the problem
        return metric
    selector = {"matchLabels": gauge_labels(*selected)}
    return {**metric, "external": {**metric["external"], "metric": {**identifier, "selector": selector}}}


def _bounds(resource: PDInference, role: Role, scaling: Autoscaling) -> dict[str, Any]:
    """The fields that HPAs and ScaledObjects share."""
    return {
        "minimum": scaling.min_replicas,
        "maximum": scaling.max_replicas,
        "target": names.role_object(resource.metadata.name, role),
        "behavior": scaling.behavior or PRESETS[role].behavior,
    }


def _quantity(milli: int) -> str:
    """A quantity in the canonical form of the API server."""
    whole, rest = divmod(milli, 1000)
    return f"{milli}m" if rest else str(whole)
