"""Options and environment variables of vLLM for the model, by kind of source.

Tests: tests/engine/test_vllm.py
"""

from typing import Any

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1.model import LoRA, Model, WeightLoading
from pdinference.api.v1alpha1.source import BucketSource, ModelSource
from pdinference.engine.command import EnvironmentVariable, secret_variable, variable
from pdinference.engine.model_cache import MODEL_MOUNT, bucket_credentials, cached_path

CHAT_TEMPLATE_MOUNT = "/etc/pdinference/chat-template"
"""Mount path of a ConfigMap with the chat template."""


def model_reference(model: Model) -> str:
    """The folder of the model in the pods, its name on a hub, or its URI. None of them starts with a dash."""
    if folder := cached_path(model):
        return folder
    if model.source.bucket is not None:
        return model.source.bucket.uri
    hub = model.source.hub
    return hub.repository if hub else model_folder(model.source)


def model_options(model: Model) -> dict[str, Any]:
    """vLLM's options for the model, apart from the model itself."""
    hub = None if cached_path(model) else model.source.hub
    options = {
        "revision": hub.revision if hub else None,
        "tokenizer-revision": hub.revision if hub else None,
        "dtype": model.dtype if model.dtype != "auto" else None,
        "quantization": model.quantization,
        "max-model-len": model.max_model_length,
        "tokenizer": model.tokenizer,
        "chat-template": _chat_template(model),
        "override-generation-config": model.generation_defaults or None,
        "load-format": model.load_format,
        "model-loader-extra-config": _streamer_options(model.load) or None,
        "trust-remote-code": True if model.trust_remote_code else None,
        **(_lora_options(model.lora) if model.lora else {}),
    }
    return {name: value for name, value in options.items() if value is not None}


def model_environment(model: Model) -> list[EnvironmentVariable]:
    """Variables for access to a hub or a bucket. For a local model, access to hubs is disabled."""
    source = model.source
    environment = []
    cached = model.cache is not None and not _needs_hub(model)
    if source.model_scope is not None and not cached:
        environment.append(variable("VLLM_USE_MODELSCOPE", "True"))
    if source.hugging_face is None or cached:
        # Beside a bucket, adapters and a tokenizer may come from the Hugging Face hub.
        if source.bucket is None or not _needs_hub(model):
            environment.append(variable("HF_HUB_OFFLINE", "1"))
    elif token := source.hugging_face.token_secret:
        environment.append(secret_variable("HF_TOKEN", token.name, token.key))
    if source.bucket is not None and model.streams:
        environment += _bucket_environment(source.bucket)
    if model.lora is not None and model.lora.dynamic_loading:
        environment.append(variable("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1"))
    return environment


def _streamer_options(load: WeightLoading) -> dict[str, int]:
    """Options of the streamer (vllm/model_executor/model_loader/runai_streamer_loader.py)."""
    limit = None if load.memory_limit is None else int(quantity(load.memory_limit) or 0)
    options = {"concurrency": load.concurrency, "memory_limit": limit}
    return {name: value for name, value in options.items() if value is not None}


def _bucket_environment(bucket: BucketSource) -> list[EnvironmentVariable]:
    """Variables of the streamer, which reads the weights, and of boto3, with which it reads the other files."""
    elsewhere = {"AWS_ENDPOINT_URL": bucket.endpoint, "RUNAI_STREAMER_S3_ENDPOINT": bucket.endpoint}
    values = {
        "AWS_DEFAULT_REGION": bucket.region,
        # The credentials are those of the resource. Nothing asks the node for its own.
        "AWS_EC2_METADATA_DISABLED": "true",
        **{name: url for name, url in elsewhere.items() if url},
        **({} if bucket.in_host else {"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}),
        **({} if bucket.signed else {"RUNAI_STREAMER_S3_UNSIGNED": "1"}),
    }
    return [*(variable(name, value) for name, value in values.items()), *bucket_credentials(bucket)]


def _needs_hub(model: Model) -> bool:
    """Whether vLLM downloads files from a hub, in addition to a cached model."""
    adapters = model.lora.adapters if model.lora else []
    paths = [model.tokenizer or "/", *(adapter.path for adapter in adapters)]
    return any(not path.startswith("/") for path in paths)


def model_folder(source: ModelSource) -> str:
    """Folder in the pods of a model that is not from a hub."""
    if volume := source.persistent_volume_claim or source.image:
        return f"{MODEL_MOUNT}/{volume.path}" if volume.path else MODEL_MOUNT
    return source.path or MODEL_MOUNT


def _chat_template(model: Model) -> str | None:
    """The text of a template, or its file. vLLM accepts both (vllm/renderers/chat_utils.py)."""
    template = model.chat_template
    if template is None or template.config_map is None:
        return template.inline if template else None
    return f"{CHAT_TEMPLATE_MOUNT}/{template.config_map.key}"


def _lora_options(lora: LoRA) -> dict[str, Any]:
    modules = [{"name": adapter.name, "path": adapter.path} for adapter in lora.adapters]
    return {
        "enable-lora": True,
        "lora-modules": modules or None,
        "max-lora-rank": lora.max_rank,
        "max-loras": lora.max_active,
    }
