"""Classes of the installed vLLM, created in one process for any rank, and their allocations."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.planning.memory.configs import Config


@dataclass(frozen=True)
class Allocated:
    """What one rank holds: parameters, and elements of the KV cache for each token."""

    parameters: int
    kv_elements: int
    max_length: int


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """A process group of one, which vLLM's layers need."""
    from vllm.config import VllmConfig, set_current_vllm_config  # noqa: PLC0415 - only where vLLM is installed
    from vllm.distributed import parallel_state  # noqa: PLC0415

    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{folder}/group", 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)
    try:
        yield
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


def allocated(folder: Path, config: Config, *, tensor: int = 1, stages: int = 1, stage: int = 0) -> Allocated:
    """Make the class that vLLM chooses for a config.json, as rank 0 of a stage; layers talk only when they run."""
    from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config  # noqa: PLC0415
    from vllm.distributed import parallel_state  # noqa: PLC0415
    from vllm.model_executor.model_loader.utils import initialize_model  # noqa: PLC0415
    from vllm.model_executor.models import ModelRegistry  # noqa: PLC0415

    (folder / "config.json").write_text(json.dumps(config))
    _make_known(config["model_type"])
    for name in config["architectures"]:  # a class that is imported here needs no process of its own to be examined
        ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())
    model_config = ModelConfig(model=str(folder), skip_tokenizer_init=True, dtype="bfloat16")
    vllm_config = VllmConfig(model_config=model_config)
    vllm_config.parallel_config.pipeline_parallel_size = stages
    ranks, pipeline = parallel_state.get_tp_group(), parallel_state.get_pp_group()
    ranks.world_size = tensor
    pipeline.world_size, pipeline.rank_in_group = stages, stage
    pipeline.rank, pipeline.ranks = stage, list(range(stages))
    with set_current_vllm_config(vllm_config):
        model = initialize_model(vllm_config)
    layers: Any = vllm_config.compilation_config.static_forward_context.values()
    return Allocated(
        sum(parameter.numel() for parameter in model.parameters()),
        sum(_kv_elements(layer) for layer in layers if hasattr(layer, "num_kv_heads")),
        model_config.max_model_len,
    )


def _kv_elements(layer: Any) -> int:
    """Keys and values of each KV head; one latent vector where attention is latent."""
    vectors = 1 if hasattr(layer, "kv_lora_rank") else 2
    return int(vectors * layer.num_kv_heads * layer.head_size)


def _make_known(model_type: str) -> None:
    """A config class for types whose own comes with their checkpoints."""
    from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig  # noqa: PLC0415
    from vllm.transformers_utils.config import _CONFIG_REGISTRY  # noqa: PLC0415

    if model_type not in CONFIG_MAPPING and model_type not in _CONFIG_REGISTRY:
        AutoConfig.register(model_type, type("Known", (PreTrainedConfig,), {"model_type": model_type}))
