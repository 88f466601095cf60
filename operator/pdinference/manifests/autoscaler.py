"""What scales the pods of a role: a HorizontalPodAutoscaler, or a ScaledObject of which KEDA makes one."""

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
from pdinference.planning.observed import Grant, Pace
from pdinference.planning.scaling.bounds import Range
from pdinference.planning.scaling.gauges import gauge_labels, selected_role
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.signals import METRICS
from pdinference.planning.scaling.targets import targets_milli


def autoscalers(resource: PDInference, revision: str, settings: RenderSettings) -> dict[Role, Manifest]:
    """What scales each role that is autoscaled."""
    if resource.spec.metrics_source == "KEDA" and settings.keda is not None:
        return _scaled_objects(resource, revision, settings.keda, settings.operator_namespace)
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
            **_bounds(resource, role, scaling, revision),
        )
        for role, scaling in _scaled(resource)
    }


def following(autoscaler: Manifest, role: Role, revision: str) -> Manifest:
    """The same autoscaler, for the workload of another revision."""
    target = autoscaler["spec"]["scaleTargetRef"]
    name = names.engine_workload(autoscaler["metadata"]["labels"][names.LABEL_NAME], role, revision)
    return {**autoscaler, "spec": {**autoscaler["spec"], "scaleTargetRef": {**target, "name": name}}}


def bounded(autoscaler: Manifest, limits: Range, grant: Grant | None) -> Manifest:
    """The same HPA with other bounds, and with what it may still act by."""
    spec = {**autoscaler["spec"], "minReplicas": limits.minimum, "maxReplicas": limits.maximum}
    return _noting({**autoscaler, "spec": spec}, names.ANNOTATION_GRANT, grant)


def paced(autoscaler: Manifest, pace: Pace | None) -> Manifest:
    """The same HPA with a note of the pace of idle pods."""
    return _noting(autoscaler, names.ANNOTATION_PACE, pace)


def _noting(autoscaler: Manifest, annotation: str, note: Grant | Pace | None) -> Manifest:
    if note is None:
        return autoscaler
    metadata = autoscaler["metadata"]
    annotations = {**metadata.get("annotations", {}), annotation: note.written()}
    return {**autoscaler, "metadata": {**metadata, "annotations": annotations}}


def _scaled_objects(
    resource: PDInference, revision: str, keda: KedaSettings, operator_namespace: str
) -> dict[Role, Manifest]:
    return {
        role: child(
            resource,
            role,
            "scaled-object",
            autoscaler=names.keda_autoscaler(resource.metadata.name, role),
            triggers=triggers(resource, role, scaling, keda, operator_namespace),
            **_bounds(resource, role, scaling, revision),
        )
        for role, scaling in _scaled(resource)
    }


def _for_adapter(metric: Mapping[str, Any]) -> Mapping[str, Any]:
    """A user's metric, with the gauges' own labels where it is one of the operator's."""
    try:
        identifier = metric["external"]["metric"]
        selected = selected_role(identifier["selector"]["matchLabels"])
        if identifier["name"] not in METRICS or selected is None:
            return metric
    except (KeyError, TypeError, AttributeError):  # the API server says what is wrong with it
        return metric
    selector = {"matchLabels": gauge_labels(*selected)}
    return {**metric, "external": {**metric["external"], "metric": {**identifier, "selector": selector}}}


def _scaled(resource: PDInference) -> Iterator[tuple[Role, Autoscaling]]:
    """The roles whose load decides how many pods they have."""
    for role in names.ENGINE_ROLES:
        spec: RoleSpec = resource.spec.of(role)
        if spec.autoscaling is not None and spec.autoscaled:
            yield role, spec.autoscaling


def _bounds(resource: PDInference, role: Role, scaling: Autoscaling, revision: str) -> dict[str, Any]:
    """What is the same whoever scales."""
    workload = names.engine_workload(resource.metadata.name, role, revision)
    return {
        "minimum": scaling.min_replicas,
        "maximum": scaling.max_replicas,
        "target": {"kind": names.WORKLOAD_KINDS[role], "name": workload},
        "behavior": scaling.behavior or PRESETS[role].behavior(),
    }


def _quantity(milli: int) -> str:
    """As the API server writes it."""
    whole, rest = divmod(milli, 1000)
    return f"{milli}m" if rest else str(whole)
