"""Make the tiny model that tests and demos serve: a random Llama with a byte-level tokenizer.

Nothing is downloaded, and the same releases make the same bytes: the weights come from a fixed seed. The answers mean
nothing; everything around them (tokens, KV cache, transfer, streaming) is as real as with any other Llama.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED: Final = 20261120
MAX_LENGTH: Final = 4096
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
    """Write the model to a folder, readable by everybody.

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
    for path in folder.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
