"""The PDScaler of each autoscaled role: what a HorizontalPodAutoscaler or a ScaledObject scales."""

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests.autoscaler import autoscaled
from pdinference.manifests.children import child
from pdinference.manifests.templates import Manifest


def scalers(resource: PDInference) -> dict[Role, Manifest]:
    """The scale target of each role that is autoscaled, without a count."""
    return {role: child(resource, role, "scaler") for role, _ in autoscaled(resource)}
