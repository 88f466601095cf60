"""Make the tiny models that tests and demos serve: a random Llama with a byte-level tokenizer, and one with experts.

Nothing is downloaded, and the same releases make the same bytes: the weights come from a fixed seed. The answers mean
nothing; everything around them (tokens, KV cache, transfer, streaming) is as real as with any other Llama.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SEED: Final = 20261120
MAX_LENGTH: Final = 4096
LORA_RANK: Final = 8
SPECIAL_TOKENS: Final = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of one token a byte, and three special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    for special in SPECIAL_TOKENS.values():
        vocabulary[special] = len(vocabulary)
    bytes_only = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    result = PreTrainedTokenizerFast(tokenizer_object=bytes_only, model_max_length=MAX_LENGTH, **SPECIAL_TOKENS)
    result.chat_template = CHAT_TEMPLATE
    return result


def main(folder: Path) -> None:
    """Write the models to a folder, and to others beside it, readable by everybody.

    Args:
        folder: Where to put it; made when it is missing.
    """
    torch.manual_seed(SEED)
    words = tokenizer()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LENGTH,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    words.save_pretrained(folder)
    LlamaForCausalLM(config).save_pretrained(folder)
    lora, experts = (folder.with_name(f"{folder.name}-{what}") for what in ("lora", "experts"))
    write_adapter(lora, config)
    words.save_pretrained(experts)
    with_experts(words).save_pretrained(experts)
    for path in (*folder.iterdir(), *lora.iterdir(), *experts.iterdir()):
        path.chmod(0o644)


def with_experts(words: PreTrainedTokenizerFast) -> Qwen3MoeForCausalLM:
    """Return a random mixture of eight experts, two of which compute each token."""
    config = Qwen3MoeConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        max_position_embeddings=MAX_LENGTH,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    return Qwen3MoeForCausalLM(config)


def write_adapter(folder: Path, config: LlamaConfig) -> None:
    """Write a random LoRA adapter in PEFT's format, strong enough that its answers differ from the model's own.

    Args:
        folder: Where to put it; made when it is missing.
        config: The model that it belongs to.
    """
    size = {
        "q_proj": config.hidden_size,
        "v_proj": config.hidden_size * config.num_key_value_heads // config.num_attention_heads,
    }
    tensors = {}
    for layer in range(config.num_hidden_layers):
        for module, out in size.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(LORA_RANK, config.hidden_size)
            tensors[f"{name}.lora_B.weight"] = torch.randn(out, LORA_RANK)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    adapter = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": LORA_RANK,
        "lora_alpha": LORA_RANK,
        "target_modules": sorted(size),
        "bias": "none",
        "base_model_name_or_path": "/models/tiny",
    }
    (folder / "adapter_config.json").write_text(json.dumps(adapter), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
