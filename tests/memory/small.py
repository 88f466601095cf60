"""Small configs of the types that transformers has."""

from typing import Any

SMALL = {
    "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "ffn_dim": 96, "word_embed_proj_dim": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128,
    "max_position_embeddings": 256, "moe_intermediate_size": 24, "n_routed_experts": 4, "num_local_experts": 4,
    "num_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_k": 2, "n_shared_experts": 2,
    "shared_expert_intermediate_size": 48, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip
"""Sizes that differ from one another, where a model type has them."""


def small_config(model_type: str, members: dict[str, Any]) -> Any:
    """A config of transformers with small sizes; what it is not given, it fills in as its class does."""
    from transformers import AutoConfig  # noqa: PLC0415 - only where vLLM is installed

    silent = AutoConfig.for_model(model_type)
    silent.allow_global_per_layer_attribute_access = True  # Gemma 4's heads
    computed = {key for key in SMALL if isinstance(getattr(type(silent), key, None), property)}
    sizes = {key: value for key, value in SMALL.items() if hasattr(silent, key) and key not in computed}
    return AutoConfig.for_model(model_type, **sizes | members, pad_token_id=0, bos_token_id=1, eos_token_id=2)
