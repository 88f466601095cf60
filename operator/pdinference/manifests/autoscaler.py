"""The HorizontalPodAutoscaler of a role."""

from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import RoleSpec
from pdinference.manifests.templates import Manifest
from pdinference.planning.observed import Grant
from pdinference.planning.scaling.bounds import Range
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.targets import targets_milli


def autoscaler_values(name: str, role: Role, spec: RoleSpec, revision: str) -> dict[str, Any] | None:
    """What the template refers to; None when the load does not decide how many pods the role has."""
    scaling = spec.autoscaling
    if scaling is None or not spec.autoscaled:
        return None
    return {
        "minimum": scaling.min_replicas,
        "maximum": scaling.max_replicas,
        "target": {"kind": names.WORKLOAD_KINDS[role], "name": names.engine_workload(name, role, revision)},
        "targets": [
            {"signal": str(signal), "average": _quantity(milli)}
            for signal, milli in targets_milli(role, scaling).items()
        ],
        "metrics": scaling.metrics,
        "behavior": scaling.behavior or PRESETS[role].behavior(),
    }


def following(autoscaler: Manifest, role: Role, revision: str) -> Manifest:
    """The same HPA, for the workload of another revision."""
    target = autoscaler["spec"]["scaleTargetRef"]
    name = names.engine_workload(autoscaler["metadata"]["labels"][names.LABEL_NAME], role, revision)
    return {**autoscaler, "spec": {**autoscaler["spec"], "scaleTargetRef": {**target, "name": name}}}


def bounded(autoscaler: Manifest, limits: Range, grant: Grant | None) -> Manifest:
    """The same HPA with other bounds, and with what it may still act by."""
    metadata = autoscaler["metadata"]
    annotations = {**metadata.get("annotations", {}), **({names.ANNOTATION_GRANT: grant.written()} if grant else {})}
    spec = {**autoscaler["spec"], "minReplicas": limits.minimum, "maxReplicas": limits.maximum}
    return {
        **autoscaler,
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "spec": spec,
    }


def _quantity(milli: int) -> str:
    """As the API server writes it."""
    whole, rest = divmod(milli, 1000)
    return f"{milli}m" if rest else str(whole)
