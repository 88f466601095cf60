"""Hostile model configs: in the spec, and in the status from an untrusted repository."""

from typing import Any

from pdinference.api.v1alpha1.source import ModelSource
from tests.hostile.entries import Entry
from tests.hostile.seeds import planned, resource
from tests.memory.configs import LLAMA_8B, MIXTRAL, QWEN3_30B_A3B

_CONFIG = "spec.model.architecture.config"
_UNKNOWN = "A member that does not fit is unknown, so the plan is unknown."
_SOURCE = {"huggingFace": {"repository": "stranger/model"}}


def _quantised(says: str, **members: Any) -> Entry:
    """A quantisation that cannot be read: nothing is computed with it."""
    config = LLAMA_8B | {"quantization_config": members}
    return Entry(planned(config), harmless=_UNKNOWN, says=says)


def _unknown(says: str = "", **members: Any) -> Entry:
    return Entry(planned(LLAMA_8B | members), harmless=_UNKNOWN, says=says or next(iter(members)))


def _refused(says: str, **members: Any) -> Entry:
    return Entry(planned(LLAMA_8B | members), refused=_CONFIG, says=says)


def _known(says: str = "", *, checkpoint: Any = None, adapters: Any = (), **members: Any) -> Entry:
    """The same config in the status."""
    lora = {"adapters": [{"name": "sql", "path": "stranger/sql"}]}
    document = resource({"model": {"source": _SOURCE, "lora": lora}})
    source = ModelSource.model_validate(_SOURCE).identity()
    facts = {"source": source, "config": LLAMA_8B | members, "checkpoint": checkpoint, "adapters": adapters}
    why = "What a status says is no user's fault; it counts as unknown."
    return Entry(document, harmless=why, says=says, model={"facts": facts})


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _skipping(*patterns: Any) -> dict[str, Any]:
    return {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": list(patterns)}


def _matched(*patterns: str) -> Entry:
    config = LLAMA_8B | {"quantization_config": _skipping(*patterns)}
    return Entry(planned(config), refused="spec.parameter", says="does not fit one device")


_DIFFERENT = Entry(
    planned(
        LLAMA_8B
        | {"num_hidden_layers": 512}
        | {"quantization_config": _skipping(*(f"layers.{(i * 7919) % 512}.mlp.down_proj" for i in range(1000)))}
    ),
    refused="spec.parameter",
    says="does not fit one device",
)
HUGE = {"num_hidden_layers": 512, "hidden_size": 2**31, "vocab_size": 2**31, "intermediate_size": 2**31}

MODEL_CONFIGS: dict[str, Entry] = {
    # Patterns: matched in linear time, or refused by RE2.
    "pattern-exponential": _matched("re:([a-z_.0-9]+)+!"),
    "pattern-alternatives": _matched("re:(a|a)*(a|a)*(.|a)*!"),
    "pattern-nested-stars": _matched("re:(((.*)*)*)*x"),
    "pattern-polynomial": _matched("re:" + ".*a" * 80),
    "patterns-of-names": _matched(*(f"model.layers.{i}.mlp" for i in range(1000))),
    "patterns-many": _matched(*(rf"re:.*layers\.{i}\.mlp" for i in range(100))),
    "pattern-repeated": _quantised("pattern", **_skipping("re:(a{1000}){1000}")),
    "pattern-look-ahead": _quantised("pattern", **_skipping("re:(?!a)+b")),
    "pattern-backreference": _quantised("pattern", **_skipping(r"re:(a+)\1+!")),
    "pattern-unclosed": _quantised("missing )", **_skipping("re:(")),
    "pattern-unicode-classes": _quantised("pattern", **_skipping(*[r"re:\pL*" * 30] * 40)),
    "pattern-number": _quantised("string", **_skipping(5)),
    "pattern-list": _quantised("string", **_skipping([["re:a"]])),
    "pattern-too-long": _quantised("256", **_skipping("re:" + "a" * 254)),
    "patterns-too-many": _quantised("1024", **_skipping(*["a"] * 1025)),
    "patterns-text": _quantised("array", quant_method="awq", modules_to_not_convert="lm_head" * 999),
    "patterns-map": _quantised("array", quant_method="fp8", ignored_layers={"a": 1}),
    "patterns-each-layer-another": _DIFFERENT,
    # Numbers that are none, or that no model has.
    "bits-text": _quantised("bits", quant_method="gptq", bits="4" * 20),
    "bits-list": _quantised("bits", quant_method="awq", bits=[4]),
    "bits-true": _quantised("bits", quant_method="awq", bits=True),
    "bits-negative": _quantised("bits", quant_method="awq", bits=-(2**62)),
    "bits-fraction": _quantised("bits", quant_method="awq", bits=3.5),
    "bits-huge": _quantised("bits", quant_method="gptq", bits=2**62),
    "w-bit-text": _quantised("w_bit", quant_method="awq", w_bit="9" * 999),
    "group-text": _quantised("group_size", quant_method="awq", group_size="128" * 99),
    "group-huge": _quantised("group_size", quant_method="awq", group_size=2**40),
    "block-zero": _quantised("weight_block_size", quant_method="fp8", weight_block_size=[0, 0]),
    "block-text": _quantised("weight_block_size", quant_method="fp8", weight_block_size=["128", "128"]),
    "block-three": _quantised("weight_block_size", quant_method="fp8", weight_block_size=[1, 1, 1]),
    "block-long": _quantised("weight_block_size", quant_method="fp8", weight_block_size=[1] * 9999),
    "switch-text": _quantised("desc_act", quant_method="gptq", desc_act="no"),
    "four-bit-number": _quantised("load_in_4bit", quant_method="bitsandbytes", load_in_4bit=1),
    "kv-bits-zero": _unknown("kv_cache_scheme", quantization_config={"kv_cache_scheme": {"num_bits": 0}}),
    "kv-bits-text": _unknown("kv_cache_scheme", quantization_config={"kv_cache_scheme": {"num_bits": "8" * 30}}),
    "kv-scheme-list": _unknown("kv_cache_scheme", quantization_config={"kv_cache_scheme": [8]}),
    "method-list": _quantised("quant_method", quant_method=["awq"]),
    "method-long": _quantised("quant_method", quant_method="a" * 30_000),
    "method-nobody-knows": _quantised("is not known here", quant_method="{{ x }}$(VAR)"),
    "groups-list": _quantised("config_groups", quant_method="compressed-tensors", config_groups=[1]),
    "groups-many": _quantised(
        "config_groups", quant_method="compressed-tensors", config_groups={f"g{i}": {} for i in range(999)}
    ),
    "groups-bits-text": _quantised(
        "config_groups", quant_method="compressed-tensors", config_groups={"g": {"weights": {"num_bits": "8" * 9}}}
    ),
    "groups-weights-text": _quantised(
        "config_groups", quant_method="compressed-tensors", config_groups={"g": {"weights": "all"}}
    ),
    "groups-block-text": _quantised(
        "config_groups",
        quant_method="compressed-tensors",
        config_groups={"g": {"weights": {"num_bits": 8, "strategy": "block", "block_structure": "9x9"}}},
    ),
    "quantization-text": _unknown(quantization_config="awq" * 999),
    "quantization-list": _unknown(quantization_config=[{"quant_method": "awq"}]),
    "quantization-number": _unknown(quantization_config=4),
    # Other members.
    "layers-many": _refused("num_hidden_layers", num_hidden_layers=2**31),
    "layers-elsewhere": _refused("num_hidden_layers", num_hidden_layers=None, num_layers=2**31),
    "layers-text": _refused("num_hidden_layers", num_hidden_layers="32"),
    "layers-true": _refused("num_hidden_layers", num_hidden_layers=True),
    "layers-infinite": _refused("JSON", num_hidden_layers=float("inf")),
    "hidden-huge": _refused("hidden_size", hidden_size=2**60),
    "hidden-negative": _refused("hidden_size", hidden_size=-4096),
    "heads-more-than-hidden": _refused("attention heads", num_attention_heads=8192),
    "heads-list": _refused("num_attention_heads", num_attention_heads=[32] * 32),
    "vocab-not-a-number": _refused("JSON", vocab_size=float("nan")),
    "vocab-beyond-64-bits": Entry(planned(LLAMA_8B | {"vocab_size": 10**400}), refused=f"{_CONFIG}.vocab_size"),
    "kv-heads-zero": _refused("KV heads", num_key_value_heads=0),
    "kv-heads-text": _unknown(num_key_value_heads="8"),
    "kv-heads-list": _unknown(num_key_value_heads=[8] * 32),
    "head-dim-text": _unknown(head_dim="128"),
    "head-dim-huge": _unknown(head_dim=2**40),
    "intermediate-list": _unknown(intermediate_size=[14336] * 32),
    "window-true": _unknown(sliding_window=True),
    "window-text": _unknown(sliding_window="4096" * 50),
    "types-few": _refused("layer_types", layer_types=["sliding_attention"], sliding_window=5),
    "types-many": _unknown(layer_types=["full"] * 5000, sliding_window=5),
    "types-of-lists": _unknown(layer_types=[[]] * 32, sliding_window=5),
    "types-map": _unknown(layer_types={"a": 1}, sliding_window=5),
    "types-long-names": _unknown(layer_types=["s" * 999] * 32, sliding_window=5),
    "pattern-of-windows-huge": _unknown(sliding_window_pattern=2**40, sliding_window=5),
    "pattern-of-windows-list": _unknown(sliding_window_pattern=[1], sliding_window=5),
    "first-window-text": _unknown(max_window_layers="3"),
    "dense-layers-text": _unknown(mlp_only_layers=["0"]),
    "dense-layers-many": _unknown(mlp_only_layers=list(range(5000))),
    "dense-layers-nested": _unknown(mlp_only_layers=[[0]]),
    "experts-many": Entry(planned(MIXTRAL | {"num_local_experts": 2**31}), refused=_CONFIG, says="experts"),
    "experts-text": Entry(planned(MIXTRAL | {"num_local_experts": "8"}), harmless=_UNKNOWN, says="num_local_experts"),
    "experts-every-minus-one": Entry(
        planned(QWEN3_30B_A3B | {"decoder_sparse_step": -(2**40)}), harmless=_UNKNOWN, says="decoder_sparse_step"
    ),
    "experts-from-a-text": Entry(
        planned(QWEN3_30B_A3B | {"first_k_dense_replace": "x"}), harmless=_UNKNOWN, says="first_k_dense_replace"
    ),
    "type-list": _unknown(model_type=["llama"]),
    "type-map": _unknown(model_type={"llama": 1}),
    "type-long": _unknown(model_type="llama" * 9000),
    "dtype-number": _unknown(torch_dtype=16),
    "tied-text": _unknown(tie_word_embeddings="yes"),
    "bias-number": _unknown(attention_bias=1),
    "rank-of-mla-text": _unknown(kv_lora_rank="512"),
    "length-text": _unknown(max_position_embeddings="131072" * 9),
    "text-config-number": _unknown("text_config", text_config=7),
    "text-config-list": _unknown("text_config", text_config=[LLAMA_8B]),
    "config-deep": Entry(
        planned(LLAMA_8B | {"rope_scaling": _nested(100)}), refused=f"{_CONFIG}.rope_scaling[0]", says="nested"
    ),
    "config-large": Entry(planned(LLAMA_8B | {"x": "y" * 70_000}), refused=_CONFIG, says="65536"),
    "config-wide": Entry(planned(LLAMA_8B | {f"x{i}": 1 for i in range(200)}), refused=_CONFIG),
    "config-of-halves-of-characters": Entry(
        planned(LLAMA_8B | {"model_type": "\ud800"}), refused=f"{_CONFIG}.model_type"
    ),
    "config-list": Entry(planned([LLAMA_8B]), refused=_CONFIG),  # type: ignore[arg-type]
    "weights-huge": Entry(
        resource({"model": {"source": {"path": "/a"}, "architecture": {"config": LLAMA_8B, "weightsBytes": 2**62}}}),
        refused="spec.model.architecture.weightsBytes",
    ),
    "everything-huge": Entry(planned(LLAMA_8B | HUGE), refused="spec.parameter", says="does not fit one device"),
    # The status, which a Job wrote that read a stranger's files.
    "status-bits-text": _known("bits", quantization_config={"quant_method": "awq", "bits": "4" * 20}),
    "status-pattern": _known(quantization_config=_skipping("re:([a-z_.0-9]+)+!")),
    "status-layers": _known("shape is not known", num_hidden_layers=2**40),
    "status-config-list": Entry(
        resource({"model": {"source": _SOURCE}}), harmless=_UNKNOWN, model={"facts": {"config": [1], "source": "x"}}
    ),
    "status-of-a-million-values": _known(model_type=[[0] * 1000] * 1000),
    "status-facts-text": Entry(resource({"model": {"source": _SOURCE}}), harmless=_UNKNOWN, model={"facts": "x"}),
    "status-model-list": Entry(resource({"model": {"source": _SOURCE}}), harmless=_UNKNOWN, model=[1]),
    "status-checkpoint-text": _known(checkpoint={"elements": "9" * 99}),
    "status-checkpoint-negative": _known(checkpoint={"otherBytes": -1}),
    "status-checkpoint-huge": _known(checkpoint={"scaleBytes": 2**80}),
    "status-checkpoint-list": _known(checkpoint=[1]),
    "status-adapters-map": _known(adapters={"path": 1}),
    "status-adapters-texts": _known(adapters=["stranger/sql"]),
    "status-adapter-rank-text": _known(adapters=[{"path": "stranger/sql", "rank": "64"}]),
    "status-adapter-modules": _known(adapters=[{"path": "stranger/sql", "modules": [[1]]}]),
    "status-adapter-base": _known(adapters=[{"path": "stranger/sql", "base": ["a/b"]}]),
}
