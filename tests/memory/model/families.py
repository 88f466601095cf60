"""Families of models without a class in the pinned transformers."""

from tests.memory.configs import Config

NOT_IN_TRANSFORMERS = {
    "aquila", "baichuan", "chatglm", "deepseek", "exaone", "internlm", "internlm2", "internlm3", "kimi_k2", "mimo",
    "mimo_v2", "mimo_v2_flash", "minicpm", "orion", "qwen", "solar", "xverse", "Yi",
}  # fmt: skip
"""Their classes come with the checkpoints, or are those of another type under a new name."""

_STATES = {"mamba_d_state": 8, "mamba_n_groups": 1, "mamba_n_heads": 8}
_DELTA = {
    "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 8, "linear_value_head_dim": 16,
}  # fmt: skip
WITHIN_OTHERS = {
    "glm4v_moe_text", "glm4v_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl", "qwen2_vl_text", "qwen3_vl_moe_text",
    "qwen3_vl_text",
}  # fmt: skip
"""Language models that have a class only together with a vision tower; test_towers.py counts them."""
_ONE_DENSE = {"first_k_dense_replace": 1, "topk_method": "noaux_tc"}  # not in the classes' own defaults
_INDEX = {"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16} | _ONE_DENSE
_GEMMA4: Config = {
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 128, "global_head_dim": 32, "num_experts": None,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
}  # fmt: skip
_KINDS = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
MEMBERS: dict[str, Config] = {
    "afmoe": {
        "num_dense_layers": 1, "score_func": "sigmoid", "route_norm": True, "n_group": 1, "topk_group": 1,
        "sliding_window": 32,
    },
    "deepseek_v32": _INDEX,
    "exaone_moe": {"num_shared_experts": 1},
    "falcon_h1": _STATES | {"mamba_d_ssm": 32, "mamba_d_head": 4, "mamba_n_groups": 4},
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4 | {"hidden_size_per_layer_input": 0},
    "glm4_moe_lite": _ONE_DENSE,
    "glm_moe_dsa": _INDEX | {"index_topk_freq": 2},
    "gpt_oss": {"intermediate_size": 128, "num_key_value_heads": 4},
    "granitemoehybrid": _STATES
    | {"layer_types": ["mamba", "attention", "mamba", "mamba"], "mamba_d_head": 16, "shared_intermediate_size": 40},
    "granitemoeshared": {"shared_intermediate_size": 40},
    "hy_v3": {
        "expert_hidden_dim": 24, "first_k_dense_replace": 1, "num_shared_experts": 1, "qk_norm": True,
        "route_norm": True,
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4, "mamba_dt_rank": 6},
    "laguna": {"num_attention_heads_per_layer": [4, 8, 8, 4], "layer_types": _KINDS, "sliding_window": 32},
    "lfm2": {"layer_types": ["conv", "conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False}
    | {"block_dim": 64, "conv_dim": 64},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"], "num_dense_layers": 1},
    "llama4_text": {"intermediate_size_mlp": 80, "interleave_moe_layer_step": 2, "attention_chunk_size": 64},
    "mellum": {"layer_types": _KINDS, "sliding_window": 32},
    "nemotron_h": {
        "layers_block_type": ["mamba", "moe", "attention", "mlp"], "mamba_num_heads": 4, "mamba_head_dim": 8,
        "ssm_state_size": 8, "n_groups": 2, "moe_shared_expert_intermediate_size": 20, "n_shared_experts": 1,
    },
    "qwen3_5_text": _DELTA,
    "qwen3_5_moe_text": _DELTA,
    "qwen3_next": _DELTA,
}  # fmt: skip
"""Members of small configs beside the usual sizes, by model type."""
