"""What scales the pods of a role: a HorizontalPodAutoscaler, or a ScaledObject of which KEDA makes one."""

from collections.abc import Iterator
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference, RoleSpec
from pdinference.api.v1alpha1.autoscaling import Autoscaling
from pdinference.manifests.children import child
from pdinference.manifests.settings import KedaSettings, RenderSettings
from pdinference.manifests.templates import Manifest
from pdinference.planning.observed import Grant, Pace
from pdinference.planning.scaling.bounds import Range
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.queries import LABEL_NAME, UNSPEAKABLE, Query, adapter_metric, matchers
from pdinference.planning.scaling.targets import label, targets_milli


def autoscalers(resource: PDInference, revision: str | None, settings: RenderSettings) -> dict[Role, Manifest]:
    """What scales each role that is autoscaled.

    Args:
        resource: With defaults.
        revision: Whose workloads are scaled; None to scale the role's PDScaler.
        settings: Of the installation.
    """
    if resource.spec.metrics_source == "KEDA" and settings.keda is not None:
        return _scaled_objects(resource, revision, settings.keda)
    name = resource.metadata.name
    adapter = resource.spec.metrics_source == "PrometheusAdapter"
    return {
        role: child(
            resource,
            role,
            "autoscaler",
            metrics_selector={LABEL_NAME: name} if adapter else names.role_selector(name, role),
            targets=[
                {"metric": adapter_metric(signal, role) if adapter else str(signal), "average": _quantity(milli)}
                for signal, milli in targets_milli(role, scaling).items()
            ],
            metrics=scaling.metrics,
            **_bounds(resource, role, scaling, revision),
        )
        for role, scaling in autoscaled(resource)
    }


def substitutes(resource: PDInference, revision: str, settings: RenderSettings) -> dict[Role, Manifest]:
    """What may stand in where another server has the API group of external metrics; empty where nothing may."""
    spec = resource.spec
    if spec.metrics_source is not None or spec.limits_both or settings.keda is None:
        return {}
    if any(
        scaling.metrics or UNSPEAKABLE & targets_milli(role, scaling).keys() for role, scaling in autoscaled(resource)
    ):
        return {}
    return _scaled_objects(resource, revision, settings.keda)


def autoscaled(resource: PDInference) -> Iterator[tuple[Role, Autoscaling]]:
    """The roles whose load decides how many pods they have."""
    for role in names.ENGINE_ROLES:
        spec: RoleSpec = resource.spec.of(role)
        if spec.autoscaling is not None and spec.autoscaled:
            yield role, spec.autoscaling


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


def _scaled_objects(resource: PDInference, revision: str | None, keda: KedaSettings) -> dict[Role, Manifest]:
    name, namespace = resource.metadata.name, resource.metadata.namespace
    return {
        role: child(
            resource,
            role,
            "scaled-object",
            autoscaler=names.keda_autoscaler(name, role),
            prometheus=keda.prometheus,
            authentication=_authentication(keda),
            auth_modes=",".join(keda.auth_modes),
            triggers=[
                {
                    "name": label(signal),
                    "threshold": f"{milli / 1000:.10g}",
                    "query": Query(signal, role, matchers(namespace, name), keda.window_seconds).promql(milli),
                }
                for signal, milli in targets_milli(role, scaling).items()
            ],
            **_bounds(resource, role, scaling, revision),
        )
        for role, scaling in autoscaled(resource)
    }


def _authentication(keda: KedaSettings) -> dict[str, str] | None:
    return None if keda.authentication is None else dict(zip(("kind", "name"), keda.authentication, strict=True))


def _bounds(resource: PDInference, role: Role, scaling: Autoscaling, revision: str | None) -> dict[str, Any]:
    """What is the same whoever scales."""
    return {
        "minimum": scaling.min_replicas,
        "maximum": scaling.max_replicas,
        "target": _scale_target(resource.metadata.name, role, revision),
        "behavior": scaling.behavior or PRESETS[role].behavior(),
    }


def _scale_target(name: str, role: Role, revision: str | None) -> dict[str, str]:
    if revision is None:
        return {"version": names.API_VERSION, "kind": names.SCALER_KIND, "name": names.role_object(name, role)}
    workload = names.engine_workload(name, role, revision)
    return {"version": "apps/v1", "kind": names.WORKLOAD_KINDS[role], "name": workload}


def _quantity(milli: int) -> str:
    """As the API server writes it."""
    whole, rest = divmod(milli, 1000)
    return f"{milli}m" if rest else str(whole)
