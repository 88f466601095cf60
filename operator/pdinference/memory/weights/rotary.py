"""The table of rotary positions, which each rank keeps beside its weights.

Tests: tests/memory/test_options.py
"""

from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings

_WITHOUT = frozenset({"bloom", "gpt2", "jamba", "opt"})
"""Types with learned positions, with slopes (ALiBi), or without any."""
_SECTIONS = (
    "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v", "glm4v_moe",
)  # fmt: skip
"""Types whose positions have sections of time, height and width (M-RoPE); their text parts end with `_text`."""
_PART = {
    "glm4": 0.5, "glm4_moe": 0.5, "glm4v_text": 0.5, "glm4v_moe_text": 0.5, "gpt_neox": 0.25, "nemotron": 0.5,
    "phi": 0.5, "qwen3_5_moe_text": 0.25, "qwen3_5_text": 0.25, "qwen3_next": 0.25, "stablelm": 0.25,
}  # fmt: skip
"""The part of a head that turns, by type: `partial_rotary_factor` of transformers' configurations."""


def rotary_bytes(facts: ModelFacts, settings: Settings) -> int:
    """Bytes of the table: cosine and sine of each position, in the model's dtype; layers share it.

    Source: vllm/model_executor/layers/rotary_embedding/{base,mrope}.py; with sections it has four times the positions.
    """
    if facts.model_type in _WITHOUT or facts.position_elements or not facts.attention:
        return 0
    positions = max(facts.max_length or 0, settings.max_length or 0)
    sections = facts.model_type.removesuffix("_text") in _SECTIONS
    dims = facts.mla.qk_rope_head_dim if facts.mla else int(facts.full_head_dim * _PART.get(facts.model_type, 1))
    return positions * (4 if sections else 1) * dims * settings.dtype_bytes
