"""Published config.json files of models with several kinds of layers, experts in MXFP4 or towers, reduced likewise."""

from tests.memory.configs import DEEPSEEK_V3, Config

GPT_OSS_20B: Config = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "intermediate_size": 2880,
    "num_local_experts": 32, "num_experts_per_tok": 4, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "vocab_size": 201088, "sliding_window": 128, "max_position_embeddings": 131072,
    "layer_types": ["sliding_attention", "full_attention"] * 12, "tie_word_embeddings": False,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
    },
}  # fmt: skip
GPT_OSS_120B = GPT_OSS_20B | {
    "num_hidden_layers": 36, "num_local_experts": 128, "layer_types": ["sliding_attention", "full_attention"] * 18,
}  # fmt: skip
QWEN3_NEXT_80B: Config = {
    "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "num_hidden_layers": 48, "vocab_size": 151936,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    "max_position_embeddings": 262144, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
_QWEN3_VISION: Config = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "in_channels": 3, "patch_size": 16,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
}  # fmt: skip
QWEN3_6_27B: Config = {
    "model_type": "qwen3_5", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_attention_heads": 24,
        "num_key_value_heads": 4, "head_dim": 256, "num_hidden_layers": 64, "vocab_size": 248320,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 16, "attn_output_gate": True,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144, "dtype": "bfloat16",
    },
    "vision_config": _QWEN3_VISION | {"out_hidden_size": 5120, "deepstack_visual_indexes": []},
}  # fmt: skip
QWEN3_VL_8B: Config = {
    "model_type": "qwen3_vl", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_vl_text", "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 36, "head_dim": 128, "vocab_size": 151936,
        "max_position_embeddings": 262144, "dtype": "bfloat16",
    },
    "vision_config": _QWEN3_VISION | {"out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]},
}  # fmt: skip
QWEN2_5_VL_7B: Config = {
    "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_key_value_heads": 4, "num_hidden_layers": 28, "vocab_size": 152064, "max_position_embeddings": 128000,
    "tie_word_embeddings": False, "use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 28,
    "vision_config": {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_chans": 3,
    },
    "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA3_27B: Config = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_attention_heads": 32,
        "num_hidden_layers": 62, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
    },
    "vision_config": {
        "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "num_attention_heads": 16,
        "num_hidden_layers": 27, "patch_size": 14,
    },
    "torch_dtype": "bfloat16",
}  # fmt: skip
MISTRAL_SMALL_3_1: Config = {
    "model_type": "mistral3", "spatial_merge_size": 2,
    "text_config": {
        "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 40, "head_dim": 128, "vocab_size": 131072,
        "sliding_window": None, "max_position_embeddings": 131072,
    },
    "vision_config": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "patch_size": 14, "image_size": 1540,
    },
    "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_4_SCOUT: Config = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_attention_heads": 40, "num_key_value_heads": 8, "num_hidden_layers": 48, "head_dim": 128,
        "vocab_size": 202048, "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192, "max_position_embeddings": 10485760,
    },
    "vision_config": {
        "hidden_size": 1408, "image_size": 336, "intermediate_size": 5632, "num_attention_heads": 16,
        "num_hidden_layers": 34, "patch_size": 14, "projector_input_dim": 4096, "projector_output_dim": 4096,
        "vision_output_dim": 4096,
    },
    "torch_dtype": "bfloat16",
}  # fmt: skip
GRANITE_4_TINY: Config = {
    "model_type": "granitemoehybrid", "hidden_size": 1536, "intermediate_size": 512, "num_attention_heads": 12,
    "num_key_value_heads": 4, "num_hidden_layers": 40, "vocab_size": 100352, "num_local_experts": 64,
    "num_experts_per_tok": 6, "shared_intermediate_size": 1024, "mamba_n_heads": 48, "mamba_d_head": 64,
    "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2, "tie_word_embeddings": True,
    "layer_types": [
        "attention" if layer in {5, 15, 25, 35} else "mamba" for layer in range(40)
    ],
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
NEMOTRON_3_NANO: Config = {
    "model_type": "nemotron_h", "hidden_size": 2688, "intermediate_size": 1856, "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712, "n_shared_experts": 1, "n_routed_experts": 128,
    "num_experts_per_tok": 6, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
    "vocab_size": 131072, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
    "conv_kernel": 4, "use_conv_bias": True, "max_position_embeddings": 262144, "tie_word_embeddings": False,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK_V3_2: Config = DEEPSEEK_V3 | {
    "model_type": "deepseek_v32", "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048,
}  # fmt: skip

_LAGUNA_FULL = [layer % 4 == 0 for layer in range(40)]
LAGUNA_XS: Config = {
    "model_type": "laguna", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 40, "vocab_size": 100352, "sliding_window": 512,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "gating": "per-head", "tie_word_embeddings": False, "max_position_embeddings": 262144,
    "layer_types": ["full_attention" if full else "sliding_attention" for full in _LAGUNA_FULL],
    "num_attention_heads_per_layer": [48 if full else 64 for full in _LAGUNA_FULL],
    "mlp_layer_types": ["dense", *["sparse"] * 39],
}  # fmt: skip
HY3: Config = {
    "model_type": "hy_v3", "hidden_size": 4096, "intermediate_size": 13312, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 80, "num_nextn_predict_layers": 1,
    "vocab_size": 120832, "first_k_dense_replace": 1, "num_experts": 192, "num_experts_per_tok": 8,
    "num_shared_experts": 1, "expert_hidden_dim": 1536, "moe_intermediate_size": 1536, "qk_norm": True,
    "tie_word_embeddings": False, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
MIMO_V2_FLASH: Config = {
    "model_type": "mimo_v2_flash", "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "swa_num_attention_heads": 64, "swa_head_dim": 192,
    "swa_num_key_value_heads": 8, "swa_v_head_dim": 128, "num_hidden_layers": 48, "vocab_size": 152576,
    "sliding_window": 128, "hybrid_layer_pattern": [0 if layer in {0, *range(5, 48, 6)} else 1 for layer in range(48)],
    "moe_layer_freq": [0, *[1] * 47], "add_swa_attention_sink_bias": True, "attention_bias": False,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": None,
    "topk_method": "noaux_tc", "tie_word_embeddings": False, "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}  # fmt: skip
