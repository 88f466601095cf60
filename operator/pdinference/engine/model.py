"""Where vLLM finds the model, for each kind of source."""

from typing import Any

from pdinference.api.v1alpha1.model import ModelSource
from pdinference.engine.command import EnvironmentVariable, secret_variable, variable

MODEL_MOUNT = "/models"
"""Where a volume with the model is mounted."""


def model_options(source: ModelSource) -> dict[str, Any]:
    """VLLM's options that name the model."""
    if hub := source.hugging_face:
        return {"model": hub.repository, "revision": hub.revision, "tokenizer-revision": hub.revision}
    if claim := source.persistent_volume_claim:
        return {"model": f"{MODEL_MOUNT}/{claim.path}" if claim.path else MODEL_MOUNT}
    return {"model": source.path}


def model_environment(source: ModelSource) -> list[EnvironmentVariable]:
    """Access to the hub, or none: a local model never asks the network."""
    if source.hugging_face is None:
        return [variable("HF_HUB_OFFLINE", "1")]
    token = source.hugging_face.token_secret
    return [secret_variable("HF_TOKEN", token.name, token.key)] if token else []
