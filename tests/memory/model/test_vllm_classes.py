"""Older families compared with the pinned vLLM: each rank's parameters, KV cache and maximum length."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdinference.memory import kv, model_facts
from tests.memory.configs import LLAMA_1B, Config
from tests.memory.model.families import MEMBERS, NOT_IN_TRANSFORMERS
from tests.memory.model.vllm_classes import (
    Allocated,
    Kept,
    allocated,
    allocated_bytes,
    fp8_kernels,
    kept,
    one_process,
)
from tests.memory.plans import plan
from tests.memory.sizes import breakdown, elements
from tests.memory.small import small_config

pytestmark = pytest.mark.vllm

_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "float16"}
_LLAMA: Config = _TOKENS | {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64,
    "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
    "max_position_embeddings": 256, "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip
_MHA = _LLAMA | {"num_key_value_heads": 4}
_CHATGLM: Config = _TOKENS | {
    "model_type": "chatglm", "architectures": ["ChatGLMModel"], "num_layers": 4, "hidden_size": 64,
    "ffn_hidden_size": 96, "kv_channels": 16, "num_attention_heads": 4, "multi_query_attention": True,
    "multi_query_group_num": 2, "padded_vocab_size": 128, "vocab_size": 120, "seq_length": 256,
    "add_qkv_bias": True, "add_bias_linear": False, "post_layer_norm": True, "rmsnorm": True, "original_rope": True,
    "tie_word_embeddings": False,
}  # fmt: skip
_FALCON: Config = _TOKENS | {
    "model_type": "falcon", "architectures": ["FalconForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64,
    "num_attention_heads": 4, "num_kv_heads": 4, "vocab_size": 128,
}  # fmt: skip
_EXPERTS: Config = {
    "moe_intermediate_size": 24, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": True, "scoring_func": "softmax",
}  # fmt: skip
_LATENT: Config = {
    "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "routed_scaling_factor": 2.5,
}  # fmt: skip


_MIMO_V2: Config = _LLAMA | _EXPERTS | {
    "num_key_value_heads": 1, "head_dim": 16, "v_head_dim": 8, "swa_num_attention_heads": 8, "swa_head_dim": 16,
    "swa_num_key_value_heads": 2, "swa_v_head_dim": 8, "hybrid_layer_pattern": [0, 1, 1, 0],
    "moe_layer_freq": [0, 1, 1, 1], "sliding_window": 32, "sliding_window_size": 32, "attention_bias": False,
    "add_swa_attention_sink_bias": True, "n_group": 1, "topk_group": 1, "layernorm_epsilon": 1e-5,
    "n_shared_experts": None,
}  # fmt: skip


def _without(config: Config, *members: str) -> Config:
    return {key: value for key, value in config.items() if key not in members}


HAS: dict[str, Config] = {
    "chatglm": _CHATGLM,
    "chatglm, no groups": _CHATGLM | {"multi_query_attention": False, "add_qkv_bias": False, "add_bias_linear": True},
    "falcon-7b": _FALCON,
    "falcon-40b": _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon-11b": _FALCON
    | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "tie_word_embeddings": False},
    "falcon-rw": _FALCON | {"multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
    "bloom": _TOKENS
    | {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "n_embed": 64, "n_layer": 4, "seq_length": 99}
    | {"num_attention_heads": 4, "vocab_size": 128},
    "gptj": _TOKENS
    | {"model_type": "gptj", "architectures": ["GPTJForCausalLM"], "n_embd": 64, "n_layer": 4, "n_head": 4}
    | {"rotary_dim": 8, "n_positions": 256, "vocab_size": 128, "tie_word_embeddings": False},
    "orion": _LLAMA | {"model_type": "orion", "architectures": ["OrionForCausalLM"]},
    "exaone": _LLAMA
    | {"model_type": "exaone", "architectures": ["ExaoneForCausalLM"], "num_layers": 4, "layer_norm_epsilon": 1e-5}
    | {"activation_function": "silu"},
    "internlm3": _LLAMA
    | {"model_type": "internlm3", "architectures": ["InternLM3ForCausalLM"], "head_dim": 16}
    | {"bias": False, "qkv_bias": True},
    "internlm2": _LLAMA | {"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "bias": True},
    "mimo": _LLAMA | {"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "attention_bias": True},
    "solar": _LLAMA
    | {"model_type": "solar", "architectures": ["SolarForCausalLM"], "bskcn_tv": [0.9, 0.8]}
    | {f"bskcn_{number}": [number] for number in (1, 2, 3, 4)},
    "deepseek": _MHA | {"model_type": "deepseek", "architectures": ["DeepseekForCausalLM"]} | _EXPERTS,
    "kimi_k2": _MHA | {"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]} | _EXPERTS | _LATENT,
    "mimo_v2": _MIMO_V2
    | {"model_type": "mimo_v2", "architectures": ["MiMoV2ForCausalLM"], "num_key_value_heads": 2}
    | {"moe_router_dtype": "bfloat16", "swa_num_attention_heads": 4},
    "mimo_v2_flash": _MIMO_V2 | {"model_type": "mimo_v2_flash", "architectures": ["MiMoV2FlashForCausalLM"]},
    "minicpm": _LLAMA
    | {"model_type": "minicpm", "architectures": ["MiniCPMForCausalLM"], "tie_word_embeddings": True}
    | {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256},
}
"""Types that the pinned vLLM has."""
GONE: dict[str, tuple[Config, Config]] = {
    "aquila": (_MHA, {}),
    "baichuan": (_MHA, {}),
    "internlm": (_MHA | {"bias": True}, {}),
    "qwen": (_MHA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}, {"intermediate_size": 192}),
    "xverse": (_MHA, {}),
    "Yi": (_LLAMA, {}),
}
"""Types that it has no more, each with a class that has the same tensors, and how their own config.json differs."""
ON_ALL_STAGES = {
    "cohere": "CohereForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "granitemoe": "GraniteMoeForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "opt": "OPTForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "stablelm": "StableLmForCausalLM",
}
"""Types that are not that old, whose classes allocate embedding and head on each stage all the same."""
NEWER = {
    "afmoe": "AfmoeForCausalLM",
    "exaone_moe": "ExaoneMoeForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "gemma4_unified_text": "Gemma4ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoeshared": "GraniteMoeSharedForCausalLM",
    "hy_v3": "HYV3ForCausalLM",
    "jamba": "JambaForCausalLM",
    "laguna": "LagunaForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
}
"""Types with layers of several kinds, or other tensors than the usual ones, whose class can be made on CPU."""
LATENT = {
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
}
"""Types with MLA, and with an index for sparse attention."""
IN_BYTES = (
    NEWER
    | ON_ALL_STAGES
    | {
        "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
        "glm4_moe": "Glm4MoeForCausalLM",
        "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
        "minimax_m2": "MiniMaxM2ForCausalLM",
    }
)
"""Types whose routers or states may have another type than the model."""
IN_FILES: dict[str, Config] = {
    "glm4_moe": {"head_dim": 16, "attention_bias": True},
    "minimax_m2": {"rotary_dim": 8, "scoring_func": "sigmoid", "use_routing_bias": True},
}
"""Members that published files have, and the classes of transformers do not."""
RANKS = [(1, 1, 0), (2, 1, 0), (4, 1, 0), (1, 2, 0), (1, 2, 1)]
"""Tensor-parallel size, stages, and the stage that is looked at."""


@pytest.fixture(scope="module", autouse=True)
def _process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_process(tmp_path_factory.mktemp("process")):
        yield


def _planned(config: Config, tensor: int, stages: int, stage: int) -> Allocated:
    facts = model_facts(config)
    assert facts.architecture_known
    settings = replace(
        plan(LLAMA_1B).settings, tensor=tensor, layer_partition=(4 // stages,) * stages, dtype_bytes=1, kv_bytes=1,
        state_bytes=1,
    )  # fmt: skip
    return Allocated(
        elements(facts, settings, stage),
        kv.token_bytes(facts, settings, stage),
        kv.request_bytes(facts, settings, stage),
        facts.max_length or 0,
    )


@pytest.mark.parametrize("ranks", RANKS, ids=str)
@pytest.mark.parametrize("config", HAS.values(), ids=HAS)
def test_a_rank_holds_what_vllms_class_allocates(config: Config, ranks: tuple[int, int, int], tmp_path: Path) -> None:
    tensor, stages, stage = ranks
    assert _planned(config, *ranks) == allocated(tmp_path, config, tensor=tensor, stages=stages, stage=stage)


@pytest.mark.parametrize("ranks", RANKS, ids=str)
@pytest.mark.parametrize("model_type", GONE)
def test_a_type_that_is_gone_has_its_likes_tensors(
    model_type: str, ranks: tuple[int, int, int], tmp_path: Path
) -> None:
    like, own = GONE[model_type]
    silent = like if model_type == "Yi" else _without(like, "num_key_value_heads")
    tensor, stages, stage = ranks
    made = allocated(tmp_path, like, tensor=tensor, stages=stages, stage=stage)
    assert _planned(silent | own | {"model_type": model_type}, *ranks) == made


@pytest.mark.parametrize(
    ("model_type", "ranks"),
    # Layers of Gemma 4 that share a KV cache are in one stage.
    [(each, ranks) for each in NEWER for ranks in RANKS if "gemma4" not in each or ranks[1] == 1],
    ids=str,
)
def test_a_rank_of_a_newer_type_holds_what_vllms_class_allocates(
    model_type: str, ranks: tuple[int, int, int], tmp_path: Path
) -> None:
    config = small_config(model_type, MEMBERS.get(model_type, {})).to_dict() | {"architectures": [NEWER[model_type]]}
    tensor, stages, stage = ranks
    assert _planned(config, *ranks) == allocated(tmp_path, config, tensor=tensor, stages=stages, stage=stage)


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes classes with sparse attention possible, which vLLM does not run on CPU."""
    import torch  # noqa: PLC0415 - only where vLLM is installed
    from vllm.platforms.cpu import CpuPlatform  # noqa: PLC0415
    from vllm.v1.worker.workspace import init_workspace_manager  # noqa: PLC0415

    backend = "vllm.v1.attention.backends.mla.flashmla_sparse.FlashMLASparseBackend"
    monkeypatch.setattr(CpuPlatform, "get_attn_backend_cls", lambda *_, **__: backend)
    init_workspace_manager(torch.device("cpu"))


@pytest.mark.usefixtures("sparse")
@pytest.mark.parametrize("tensor", [1, 2, 4])
@pytest.mark.parametrize("model_type", LATENT)
def test_a_rank_with_latent_attention_holds_what_vllms_class_allocates(
    model_type: str, tensor: int, tmp_path: Path
) -> None:
    config = small_config(model_type, MEMBERS[model_type]).to_dict() | {"architectures": [LATENT[model_type]]}
    made = allocated(tmp_path, config, tensor=tensor)
    planned = _planned(config, tensor, 1, 0)
    assert (planned.parameters, planned.max_length) == (made.parameters, made.max_length)
    settings = replace(plan(config, model={"maxModelLength": 256}, accelerator={"type": "CPU"}).settings, tensor=tensor)
    cache, facts = kept(tmp_path, config, tensor=tensor), model_facts(config)
    in_blocks = settings.block_size * kv.token_bytes(facts, settings, 0)
    assert (in_blocks, sum(cache.groups)) == (cache.block_bytes, 4 + len(facts.indexer.layers if facts.indexer else ()))


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("model_type", IN_BYTES)
def test_a_rank_holds_as_many_bytes_as_vllms_class(model_type: str, tensor: int, tmp_path: Path) -> None:
    config = small_config(model_type, MEMBERS.get(model_type, {})).to_dict() | IN_FILES.get(model_type, {})
    made = plan(config)
    counted = breakdown(made.facts, replace(made.settings, tensor=tensor, dtype_bytes=2), 0).total()
    named = config | {"architectures": [IN_BYTES[model_type]]}
    assert counted == allocated_bytes(tmp_path, named, tensor=tensor)


@pytest.mark.parametrize(("width", "tensor"), [(256, 1), (256, 2), (192, 2), (384, 2)])
def test_experts_in_fp8_have_smaller_blocks_where_ranks_split_these(width: int, tensor: int, tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "head_dim": 128, "moe_intermediate_size": width}
    quantised = {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
        "modules_to_not_convert": [f"model.layers.{layer}.mlp.gate" for layer in range(4)],
    }  # fmt: skip
    config = small_config("qwen3_moe", sizes).to_dict() | {"quantization_config": quantised}
    made = plan(config)
    counted = breakdown(made.facts, replace(made.settings, tensor=tensor), 0)["experts"]
    named = config | {"architectures": ["Qwen3MoeForCausalLM"]}
    with fp8_kernels():
        assert counted == allocated_bytes(tmp_path, named, tensor=tensor, part=".mlp.")


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("model_type", NEWER)
def test_the_kv_cache_of_a_newer_type_is_divided_as_in_vllm(model_type: str, tensor: int, tmp_path: Path) -> None:
    config = small_config(model_type, MEMBERS.get(model_type, {})).to_dict() | {"architectures": [NEWER[model_type]]}
    assert kept(tmp_path, config, tensor=tensor) == _planned_kv(config, tensor)


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("model_type", ["mimo_v2", "mimo_v2_flash"])
def test_windows_with_heads_of_their_own_are_divided_as_in_vllm(model_type: str, tensor: int, tmp_path: Path) -> None:
    assert kept(tmp_path, HAS[model_type], tensor=tensor) == _planned_kv(HAS[model_type], tensor)


def _planned_kv(config: Config, tensor: int) -> Kept:
    """What the plan has for what vLLM keeps for requests of 256 tokens."""
    made = plan(
        config, model={"maxModelLength": 256}, engine={"maxNumBatchedTokens": 2048}, accelerator={"type": "CPU"}
    )
    settings = replace(made.settings, tensor=tensor)
    groups = kv.groups_of(made.facts, settings)
    return Kept(
        kv.block_bytes(made.facts, settings, 0),
        kv.blocks_per_request(groups, settings, 256),
        sorted(len(group.layers) for group in groups),
    )


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("model_type", ON_ALL_STAGES)
def test_a_stage_allocates_what_it_does_not_use(model_type: str, stage: int, tmp_path: Path) -> None:
    config = small_config(model_type, {}).to_dict() | {"architectures": [ON_ALL_STAGES[model_type]]}
    assert _planned(config, 1, 2, stage) == allocated(tmp_path, config, stages=2, stage=stage)


def test_a_type_that_transformers_lacks_is_counted_here() -> None:
    assert {config["model_type"] for config in HAS.values()} | GONE.keys() >= NOT_IN_TRANSFORMERS


def test_the_types_that_are_gone_are_those_of_the_registry() -> None:
    from vllm.model_executor.models.registry import _PREVIOUSLY_SUPPORTED_MODELS, ModelRegistry  # noqa: PLC0415

    classes = {
        "aquila": "AquilaForCausalLM", "baichuan": "BaiChuanForCausalLM", "internlm": "InternLMForCausalLM",
        "mpt": "MPTForCausalLM", "qwen": "QWenLMHeadModel", "xverse": "XverseForCausalLM",
    }  # fmt: skip
    for model_type, name in classes.items():
        facts = model_facts(_MHA | {"model_type": model_type})
        assert facts.last_version == _PREVIOUSLY_SUPPORTED_MODELS[name]
    assert not {*classes.values(), "YiForCausalLM"} & {*ModelRegistry.get_supported_archs()}
