"""KV cache from pipeline stages of P: pushed, by a connector that tells D how many stages there are."""

from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.own_class import OwnConnector


def pushes_from_stages(resource: PDInference) -> bool:
    """Whether vLLM has to push the KV cache: D cannot pull it from stages ("Number of KV layers must match")."""
    return resource.spec.transfer.connector == "Nixl" and resource.spec.parameter.parallelism.pipeline > 1


def staged_push(resource: PDInference) -> OwnConnector:
    """D's connector; P's is vLLM's own."""
    stages = resource.spec.parameter.parallelism.pipeline
    return OwnConnector("StagedPushConnector", "staged_push", {"parameter_stages": stages})
