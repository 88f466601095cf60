"""Names of the linear layers of a model, under which quantised checkpoints leave some out.

Tests: tests/memory/weights/test_weights.py, tests/memory/test_newer.py
"""

from collections.abc import Iterator, Mapping

from pdinference.memory.model.shape import ModelFacts

_USUAL = {"attention": "self_attn", "state": "mamba", "mlp": "mlp", "experts": "mlp", "shared": "mlp.shared_experts"}
_ONE_SHARED = _USUAL | {"state": "linear_attn", "shared": "mlp.shared_expert"}
_FEED_FORWARD = _USUAL | {"mlp": "feed_forward", "experts": "feed_forward", "shared": "feed_forward.shared_expert"}
_GRANITE = _USUAL | {"mlp": "shared_mlp", "experts": "block_sparse_moe", "shared": "shared_mlp"}
_CONVOLUTION = _FEED_FORWARD | {"state": "conv"}
_PARENTS: Mapping[str, Mapping[str, str]] = {
    "falcon_h1": _FEED_FORWARD,
    "granitemoehybrid": _GRANITE,
    "granitemoeshared": _GRANITE,
    "hy_v3": _USUAL | {"shared": "mlp.shared_mlp"},
    "jamba": _FEED_FORWARD,
    "laguna": _USUAL | {"shared": "mlp.shared_expert"},
    "lfm2": _CONVOLUTION,
    "lfm2_moe": _CONVOLUTION,
    "llama4_text": _FEED_FORWARD,
    "nemotron_h": dict.fromkeys(_USUAL, "mixer") | {"shared": "mixer.shared_experts"},
    "qwen2_moe": _ONE_SHARED,
    "qwen3_5_moe_text": _ONE_SHARED,
    "qwen3_5_text": _ONE_SHARED,
    "qwen3_next": _ONE_SHARED,
}
"""How model classes call the parts of a layer."""
_MLP = ("gate_up_proj", "gate_proj", "up_proj", "down_proj")
_STATE = (
    "in_proj", "in_proj_qkvz", "in_proj_qkv", "in_proj_z", "in_proj_ba", "in_proj_b", "in_proj_a", "out_proj",
)  # fmt: skip
_ATTENTION = ("qkv_proj", "q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "g_proj", "gate_proj")
_LATENT = (
    "q_proj", "kv_a_proj_with_mqa", "fused_qkv_a_proj", "q_a_proj", "q_b_proj", "kv_b_proj", "o_proj", "indexer.wq_b",
)  # fmt: skip


def modules(facts: ModelFacts, layer: int, part: str, *names: str) -> tuple[str, ...]:
    """The full names that layers of a part may have.

    Args:
        facts: The model.
        layer: Index of the layer.
        part: `attention`, `state`, `mlp`, `experts` or `shared`.
        names: Names within the part.
    """
    parent = _PARENTS.get(facts.model_type, _USUAL)[part]
    return tuple(f"{prefix}layers.{layer}.{parent}.{name}" for prefix in _prefixes(facts) for name in names)


def all_modules(facts: ModelFacts, layer: int) -> Iterator[str]:
    """The names of all linear layers that a layer may have, without what begins the names of all layers."""
    parts: dict[str, tuple[str, ...]] = {"attention": _LATENT if facts.mla else _ATTENTION, "mlp": _MLP}
    if facts.state is not None:
        parts["state"] = _STATE
    if facts.moe is not None:
        parts |= {"experts": ("experts", "fc1_latent_proj", "fc2_latent_proj"), "shared": _MLP}
    for part, names in parts.items():
        yield from modules(facts, layer, part, *names)


def _prefixes(facts: ModelFacts) -> tuple[str, ...]:
    """How names of the language model's layers begin: in transformers 5, and before."""
    if facts.has_more:
        return "model.language_model.", "language_model.model."
    return ("backbone.", "model.") if facts.model_type == "nemotron_h" else ("model.",)
