"""The KV cache compared with logs of vLLM 0.32.0 on CPU.

`benchmarks/memory_plan` repeats the run for the types before gpt-oss; the others were run with its functions.
"""

import pytest

from tests.memory.configs import Config
from tests.memory.plans import plan

_TINY: Config = {
    "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 8192,
}  # fmt: skip
_LATENT: Config = {
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 128,
}  # fmt: skip
_EXPERTS: Config = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
_DELTA: Config = {
    "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
}  # fmt: skip
NEWER: dict[str, tuple[Config, int, float]] = {
    "gpt-oss": ({"model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 128},
                762_600, 372.36),
    "qwen3-next": ({"model_type": "qwen3_next", "num_hidden_layers": 8, **_EXPERTS, **_DELTA}, 762_600, 372.36),
    "llama4": (
        {"model_type": "llama4_text", "num_hidden_layers": 8, "intermediate_size_mlp": 512, "num_local_experts": 4,
         "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 512},
        419_430, 204.8,
    ),
    "granite-hybrid": (
        {"model_type": "granitemoehybrid", "num_hidden_layers": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
         "shared_intermediate_size": 256, "layer_types": ["mamba", "mamba", "mamba", "attention"] * 2,
         "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_state": 32, "mamba_n_groups": 1, "mamba_d_conv": 4},
        493_447, 240.94,
    ),
    "falcon-h1": (
        {"model_type": "falcon_h1", "mamba_d_ssm": 256, "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 32,
         "mamba_n_groups": 1, "mamba_d_conv": 4},
        441_505, 215.58,
    ),
    "jamba": (
        {"model_type": "jamba", "num_hidden_layers": 8, "num_experts": 4, "num_experts_per_tok": 2,
         "attn_layer_period": 4, "attn_layer_offset": 1, "mamba_d_state": 16},
        762_600, 372.36,
    ),
    "lfm2": (
        {"model_type": "lfm2", "num_hidden_layers": 6, "conv_L_cache": 3,
         "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "full_attention"]},
        838_860, 409.6,
    ),
    "gemma4": (
        {"model_type": "gemma4_text", "num_hidden_layers": 8, "sliding_window": 256, "global_head_dim": 128,
         "layer_types": ([*["sliding_attention"] * 3, "full_attention"]) * 2, "num_kv_shared_layers": 2},
        466_033, 227.56,
    ),
    "glm4-moe-lite": (
        {"model_type": "glm4_moe_lite", "q_lora_rank": 192, **_LATENT}, 232_960, 113.75,
    ),
    "exaone-moe": (
        {"model_type": "exaone_moe", "num_hidden_layers": 8, "num_shared_experts": 1, "sliding_window": 256,
         **_EXPERTS},
        453_438, 221.41,
    ),
}  # fmt: skip
"""Of types with several kinds of layers: members, tokens and concurrency."""


@pytest.mark.parametrize(
    ("changes", "tokens", "concurrency"),
    [
        ({"model_type": "llama"}, 262_144, 128.0),
        ({"model_type": "llama", "num_key_value_heads": 2}, 524_288, 256.0),
        ({"model_type": "qwen2", "num_key_value_heads": 1, "num_hidden_layers": 7}, 599_168, 292.56),
        (
            {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2},
            524_288,
            256.0,
        ),
        ({"model_type": "deepseek_v2", **_LATENT}, 232_960, 113.75),
        ({"model_type": "deepseek_v3", "q_lora_rank": 192, **_LATENT}, 232_960, 113.75),
        ({"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 512}, 932_067, 455.11),
        ({"model_type": "gemma2", "num_key_value_heads": 2, "sliding_window": 512}, 671_088, 327.68),
        (
            {"model_type": "gemma3_text", "num_key_value_heads": 1, "num_hidden_layers": 14, "sliding_window": 256},
            578_524,
            282.48,
        ),
    ],
)
def test_tokens_and_concurrency_are_those_of_vllm(changes: Config, tokens: int, concurrency: float) -> None:
    made = plan(
        {**_TINY, **changes},
        model={"maxModelLength": 2048},
        engine={"maxNumBatchedTokens": 512, "maxNumSeqs": 8, "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}},
        accelerator={"type": "CPU"},
    )
    assert made.tokens.value == tokens
    assert made.concurrency.value == concurrency


@pytest.mark.parametrize("name", NEWER)
def test_types_with_several_kinds_of_layers_hold_what_vllm_logged(name: str) -> None:
    changes, tokens, concurrency = NEWER[name]
    test_tokens_and_concurrency_are_those_of_vllm({"num_key_value_heads": 2, **changes}, tokens, concurrency)
