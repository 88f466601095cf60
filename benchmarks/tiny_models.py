"""Tiny models with random weights, one for each kind of attention; runs in an environment with transformers.

python benchmarks/tiny_models.py FOLDER      # writes FOLDER/<name>, prints the names
"""

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_COMMON = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
_LATENT = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
MODELS: dict[str, dict[str, Any]] = {
    "mha-llama": {"model_type": "llama"},
    "gqa-llama-tied": {"model_type": "llama", "num_key_value_heads": 2, "tie_word_embeddings": True},
    "gqa-qwen2": {"model_type": "qwen2", "num_key_value_heads": 1, "num_hidden_layers": 7},
    "moe-mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_key_value_heads": 2, "sliding_window": None},
    "mla-deepseek-v2": {"model_type": "deepseek_v2", "q_lora_rank": None, **_LATENT},
    "mla-deepseek-v3": {"model_type": "deepseek_v3", "q_lora_rank": 192, "topk_method": "noaux_tc", **_LATENT},
    "sliding-mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 512},
    "hybrid-gemma2": {"model_type": "gemma2", "num_key_value_heads": 2, "sliding_window": 512,
                      "tie_word_embeddings": True},
    "hybrid-gemma3": {"model_type": "gemma3_text", "num_key_value_heads": 1, "num_hidden_layers": 14,
                      "sliding_window": 256, "tie_word_embeddings": True},
}  # fmt: skip


def main() -> None:
    """Write every model."""
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    for name, changes in MODELS.items():
        settings = {**_COMMON, **changes}
        if settings["model_type"].startswith("deepseek"):
            settings.pop("head_dim")
        config = AutoConfig.for_model(settings.pop("model_type"), **settings)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(folder / name)
        print(name)


if __name__ == "__main__":
    main()
