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
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.queries import LABEL_NAME, Query, adapter_metric, matchers
from pdinference.planning.scaling.targets import label, targets_milli


def autoscalers(resource: PDInference, settings: RenderSettings) -> dict[Role, Manifest]:
    """What writes to the PDScaler of each role that is autoscaled."""
    if resource.spec.metrics_source == "KEDA" and settings.keda is not None:
        return _scaled_objects(resource, settings.keda)
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
            **_bounds(resource, role, scaling),
        )
        for role, scaling in autoscaled(resource)
    }


def autoscaled(resource: PDInference) -> Iterator[tuple[Role, Autoscaling]]:
    """The roles whose load decides how many pods they have."""
    for role in names.ENGINE_ROLES:
        spec: RoleSpec = resource.spec.of(role)
        if spec.autoscaling is not None and spec.autoscaled:
            yield role, spec.autoscaling


def _scaled_objects(resource: PDInference, keda: KedaSettings) -> dict[Role, Manifest]:
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
            **_bounds(resource, role, scaling),
        )
        for role, scaling in autoscaled(resource)
    }


def _authentication(keda: KedaSettings) -> dict[str, str] | None:
    return None if keda.authentication is None else dict(zip(("kind", "name"), keda.authentication, strict=True))


def _bounds(resource: PDInference, role: Role, scaling: Autoscaling) -> dict[str, Any]:
    """What is the same whoever scales."""
    return {
        "minimum": scaling.min_replicas,
        "maximum": scaling.max_replicas,
        "target": names.role_object(resource.metadata.name, role),
        "behavior": scaling.behavior or PRESETS[role].behavior(),
    }


def _quantity(milli: int) -> str:
    """As the API server writes it."""
    whole, rest = divmod(milli, 1000)
    return f"{milli}m" if rest else str(whole)
