"""The PDScaler of each autoscaled role, the scale target of a HorizontalPodAutoscaler or a ScaledObject."""

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests.autoscaler import autoscaled
from pdinference.manifests.children import child
from pdinference.manifests.templates import Manifest


def scalers(resource: PDInference) -> dict[Role, Manifest]:
    """The scale target of each autoscaled role, without a replica count."""
    return {role: child(resource, role, "scaler") for role, _ in autoscaled(resource)}
