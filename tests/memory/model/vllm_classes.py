"""Classes of the installed vLLM, created in one process for any rank, and their allocations."""

import importlib
import importlib.util
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.memory.configs import Config


@dataclass(frozen=True)
class Allocated:
    """What one rank holds: parameters, elements of the KV cache for each token, and of the states of each request."""

    parameters: int
    kv_elements: int
    state_elements: int
    max_length: int


@dataclass(frozen=True)
class Kept:
    """How the KV cache is divided: bytes of a block, blocks of the longest request, and layers of each group."""

    block_bytes: int
    blocks_per_request: int
    groups: list[int]


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """A process group of one, which vLLM's layers need."""
    from vllm.config import VllmConfig, set_current_vllm_config  # noqa: PLC0415 - only where vLLM is installed
    from vllm.distributed import parallel_state  # noqa: PLC0415

    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{folder}/group", 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)
    # vLLM examines each class in a process of its own, which imports vLLM again: half a minute for each.
    try:
        examined_here = patch("vllm.model_executor.models.registry._run_in_subprocess", lambda examine: examine())
        with examined_here, _transformers_restored():
            yield
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


@contextmanager
def _transformers_restored() -> Iterator[None]:
    """vLLM registers types with transformers, and makes its class of DeepSeek V3 that of V3.2; both end here.

    See _register_config_class in vllm/transformers_utils/config.py.
    """
    from transformers import CONFIG_MAPPING, DeepseekV3Config  # noqa: PLC0415 - only where vLLM is installed

    its_type = patch.object(DeepseekV3Config, "model_type", DeepseekV3Config.model_type)
    with its_type, patch.dict(CONFIG_MAPPING._extra_content):
        yield


def allocated(folder: Path, config: Config, *, tensor: int = 1, stages: int = 1, stage: int = 0) -> Allocated:
    """Make the class that vLLM chooses for a config.json, as rank 0 of a stage; layers talk only when they run."""
    from vllm.model_executor.layers.mamba.abstract import MambaBase  # noqa: PLC0415 - only where vLLM is installed

    vllm_config, model = _made(folder, config, tensor, stages, stage)
    layers: Any = vllm_config.compilation_config.static_forward_context.values()
    return Allocated(
        sum(parameter.numel() for parameter in model.parameters()),
        sum(_kv_elements(layer) for layer in layers if hasattr(layer, "num_kv_heads")),
        sum(math.prod(shape) for layer in layers if isinstance(layer, MambaBase) for shape in layer.get_state_shape()),
        vllm_config.model_config.max_model_len,
    )


def allocated_bytes(folder: Path, config: Config, *, tensor: int = 1, part: str = "") -> int:
    """Bytes of the parameters of one rank, of a model in bfloat16; some classes have parameters in float32.

    Args:
        folder: For its config.json.
        config: Its content.
        tensor: Tensor-parallel size.
        part: What the names of parameters have to contain.
    """
    from torch import bfloat16  # noqa: PLC0415 - only where vLLM is installed
    from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: PLC0415

    with set_default_torch_dtype(bfloat16):
        _, model = _made(folder, config, tensor)
    named = (parameter for name, parameter in model.named_parameters() if part in name)
    return sum(parameter.numel() * parameter.element_size() for parameter in named)


@dataclass(frozen=True)
class Drafted:
    """What one rank holds of a draft: elements of each parameter by name, and the draft's part of the KV cache."""

    parameters: dict[str, int]
    kv_elements: int


def drafted(folder: Path, config: Config, draft: Config | None, method: str, *, tensor: int = 1) -> Drafted:
    """Make the class of a draft that vLLM chooses; without a config of its own it is in the model's files (MTP)."""
    vllm_config, made = _drafted(folder, config, draft, method, tensor)
    layers: Any = vllm_config.compilation_config.static_forward_context.values()
    return Drafted(
        {name: parameter.numel() for name, parameter in made.named_parameters()},
        sum(_kv_elements(layer) for layer in layers if hasattr(layer, "num_kv_heads")),
    )


def kept_with_draft(folder: Path, config: Config, draft: Config, method: str) -> Kept:
    """How vLLM on CPU divides the KV cache of a model and its draft."""
    model, _ = _made(folder, config)
    with_draft, _ = _drafted(folder, config, draft, method, 1)
    with_draft.cache_config = (
        model.cache_config
    )  # vLLM sets the blocks of states for the first configuration of a model
    layers = with_draft.compilation_config.static_forward_context
    layers.update(model.compilation_config.static_forward_context | layers)
    return _divided(with_draft)


def _drafted(folder: Path, config: Config, draft: Config | None, method: str, tensor: int) -> tuple[Any, Any]:
    """The configuration and the draft."""
    from vllm.config import VllmConfig, set_current_vllm_config  # noqa: PLC0415 - only where vLLM is installed
    from vllm.config.speculative import SpeculativeConfig  # noqa: PLC0415
    from vllm.distributed import parallel_state  # noqa: PLC0415
    from vllm.model_executor.model_loader.utils import initialize_model  # noqa: PLC0415

    target, own = folder / "target", folder / "draft"
    target.mkdir()
    own.mkdir()
    named: dict[str, Any] = {}
    if draft is not None:
        (own / "config.json").write_text(json.dumps(draft))
        named["model"] = str(own)
    model_config = _made(target, config)[0].model_config
    ranks = parallel_state.get_tp_group()
    ranks.world_size = 1
    with _planned_processor():
        speculative = SpeculativeConfig(
            method=method, num_speculative_tokens=1, target_model_config=model_config,
            target_parallel_config=VllmConfig().parallel_config, **named,
        )  # fmt: skip
        vllm_config = VllmConfig(model_config=model_config, speculative_config=speculative)
        if method == "draft_model":  # as DraftModelProposer does
            vllm_config = VllmConfig(model_config=speculative.draft_model_config)
    ranks.world_size = tensor
    with set_current_vllm_config(vllm_config):
        return vllm_config, initialize_model(vllm_config, model_config=speculative.draft_model_config)


def kept(folder: Path, config: Config, *, tensor: int = 1) -> Kept:
    """How vLLM on CPU divides the KV cache of a class that it chooses for a config.json."""
    vllm_config, _ = _made(folder, config, tensor)
    vllm_config.parallel_config.tensor_parallel_size = tensor
    return _divided(vllm_config)


def _divided(vllm_config: Any) -> Kept:
    """How vLLM divides the KV cache of the layers that were made with a configuration."""
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase  # noqa: PLC0415
    from vllm.platforms import current_platform  # noqa: PLC0415

    planning = _kv_cache_planning()
    current_platform.update_block_size_for_backend(vllm_config)
    vllm_config.cache_config.kv_cache_layout = "LBHNC"
    layers: Any = vllm_config.compilation_config.static_forward_context
    specs = {
        name: spec
        for name, layer in layers.items()
        if isinstance(layer, AttentionLayerBase)
        and not getattr(layer, "kv_sharing_target_layer_name", None)
        and (spec := layer.get_kv_cache_spec(vllm_config)) is not None
    }
    groups = planning.get_kv_cache_groups(vllm_config, specs)
    each = [
        -(-group.kv_cache_spec.max_memory_usage_bytes(vllm_config) // group.kv_cache_spec.page_size_bytes)
        for group in groups
    ]
    return Kept(
        planning._pool_bytes_per_block(vllm_config, groups),
        sum(each),
        sorted(len(group.layer_names) for group in groups),
    )


def _kv_cache_planning() -> Any:
    """vLLM's module that divides the KV cache; it has another name since 0.33."""
    name = "vllm.v1.core.kv_cache_planning"
    return importlib.import_module(name if importlib.util.find_spec(name) else "vllm.v1.core.kv_cache_utils")


def _define_missing_operators() -> None:
    """Activations that classes look up while they are made, and that a wheel for GPUs has only with CUDA."""
    import torch  # noqa: PLC0415

    for name in ("gelu_new", "gelu_quick"):
        if not hasattr(torch.ops._C, name):
            torch.library.define(f"_C::{name}", "(Tensor! out, Tensor input) -> ()")


def _made(folder: Path, config: Config, tensor: int = 1, stages: int = 1, stage: int = 0) -> tuple[Any, Any]:
    """The configuration and the model."""
    from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config  # noqa: PLC0415
    from vllm.distributed import parallel_state  # noqa: PLC0415
    from vllm.model_executor.model_loader.utils import initialize_model  # noqa: PLC0415

    _define_missing_operators()
    (folder / "config.json").write_text(json.dumps(config))
    _make_known(config["model_type"])
    with _planned_processor():
        model_config = ModelConfig(model=str(folder), skip_tokenizer_init=True, dtype="bfloat16")
        vllm_config = VllmConfig(model_config=model_config)
    vllm_config.parallel_config.pipeline_parallel_size = stages
    ranks, pipeline = parallel_state.get_tp_group(), parallel_state.get_pp_group()
    ranks.world_size = tensor
    pipeline.world_size, pipeline.rank_in_group = stages, stage
    pipeline.rank, pipeline.ranks = stage, list(range(stages))
    with set_current_vllm_config(vllm_config):
        return vllm_config, initialize_model(vllm_config)


@contextmanager
def _planned_processor() -> Iterator[None]:
    """The processor that plans assume (memory/settings.py), whichever runs the test.

    vLLM's configuration depends on it: blocks of MLA have 16 tokens without AMX.
    """
    amx = patch("torch.cpu._is_amx_tile_supported", return_value=True)
    avx_512 = patch("torch.cpu._is_avx512_bf16_supported", return_value=True)
    with amx, avx_512:
        yield


@contextmanager
def fp8_kernels() -> Iterator[None]:
    """As if this processor multiplied in FP8; layers ask for that while they are created."""
    amx = patch("torch.cpu._is_amx_tile_supported", return_value=True)
    with amx, patch("vllm._custom_ops._supports_cpu_fp8_w8a16", new=True):
        yield


def _kv_elements(layer: Any) -> int:
    """Keys and values of each KV head; one latent vector where attention is latent; 0 where another layer has them."""
    if getattr(layer, "kv_sharing_target_layer_name", None):
        return 0
    values = 0 if hasattr(layer, "kv_lora_rank") else layer.head_size_v
    return int(layer.num_kv_heads * (layer.head_size + values))


def _make_known(model_type: str) -> None:
    """A config class for types whose own comes with their checkpoints."""
    from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig  # noqa: PLC0415
    from vllm.transformers_utils.config import _CONFIG_REGISTRY  # noqa: PLC0415

    if model_type not in CONFIG_MAPPING and model_type not in _CONFIG_REGISTRY:
        AutoConfig.register(model_type, type("Known", (PreTrainedConfig,), {"model_type": model_type}))
