"""Properties of model classes that a `config.json` lacks, by `model_type`.

Sources: the classes of vllm/model_executor/models and, for what a config.json leaves out, of transformers
(models/*/configuration_*.py). `tests/memory/model/test_architectures.py` counts the parameters of each class.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Flag = bool | str | tuple[str, ...]
"""True, False, or the member of config.json that decides; of several members, any one that is true."""

StagePart = Literal["embedding", "norm", "head"]
"""What a pipeline stage has beside its layers."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Tensors of an architecture beside the large matrices, which all have.

    Attributes:
        names: Members of config.json that have another name than usual, by the usual one.
        norms: Norms of the hidden size in each layer.
        parallel_norms: Whether `parallel_attn` leaves one norm, unless `num_ln_in_parallel_attn` is 2 (falcon.py).
        embedding_norm: Whether there is a norm after the embedding.
        norm_bias: Whether norms have a bias (LayerNorm).
        qkv_bias: Whether the projections to queries, keys and values have a bias.
        output_bias: Whether the projection out of attention has one.
        mlp_bias: Whether the feed-forward layers have one.
        head_bias: Whether the head has one.
        gated: Whether the feed-forward part has a gate beside its first product.
        halved_mlp: Whether config.json's width is that of the gate and the first product together.
        packed: What the checkpoint has in one tensor, and LoRA so in one adapter: queries, keys and values, or the gate
            and the first product as well.
        grouped: Member of config.json without which the number of KV heads that it names does not count.
        on_all_stages: What each pipeline stage allocates, used or not: embedding, last norm, head.
        qk_norm: Whether queries and keys are normalised: over each head, over all heads together, or over those of each
            rank.
        qk_norm_switch: Member of config.json that turns that on; empty: always on.
        positions: Member of config.json with the number of learned positions, and how many there are beyond it.
        defaults: Defaults of the class for absent members.
        sliding_every: Every n-th layer attends to everything; 0: `layer_types` or the window alone decides.
        window_switch: Whether `sliding_window` counts only with `use_sliding_window: true`.
        gated_sharing: Whether a gate weighs the shared expert.
        correction_bias: Whether routers have a float32 bias for each expert.
        router_float32: Whether routers are in float32, whatever the model's dtype.
        state: What layers that keep a state have in place of attention; empty: every layer attends.
        side_by_side: Whether each layer has both, attention and state.
        one_mixer: Whether each layer is attention, state or feed-forward part alone.
        state_norm: Member of config.json that turns the norm in Mamba 2 on; empty: always on.
        state_dtype: Type of what the recurrence accumulates, unless `mamba_ssm_dtype` or `mamba_ssm_cache_dtype` says;
            empty: the model's.
        output_gate: Whether queries have a gate for the output of attention beside them.
        separate_gate: What a gate for the output of attention, in a layer of its own, has a number for: each element
            or each head; or the member of config.json that says.
        sinks: Whether each head has a sink.
        window_heads: Whether layers with a window have heads of their own (members `swa_*`), and values another size.
        expert_bias: Whether routers and experts have biases.
        dense_width: Member of config.json with the width of layers without experts.
        chunked: Whether `attention_chunk_size` limits attention in all but every n-th layer (Llama 4).
        indexed: Whether attention is sparse, with an index for each token.
        full_heads: Whether layers that attend to everything have heads of their own (`global_head_dim`).
        beside_experts: Whether layers with experts have the dense feed-forward part as well, and a norm more on each
            way (Gemma 4).
        unless: Members of config.json that, if they are true, stand for tensors that are not known here.
        only_with: Members of config.json without which the tensors are not known here.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    norms: int = 2
    parallel_norms: bool = False
    embedding_norm: bool = False
    norm_bias: bool = False
    qkv_bias: Flag = "attention_bias"
    output_bias: Flag = False
    mlp_bias: Flag = "mlp_bias"
    head_bias: bool = False
    gated: bool = True
    halved_mlp: bool = False
    packed: Literal["", "qkv", "all"] = ""
    grouped: str = ""
    on_all_stages: tuple[StagePart, ...] = ()
    qk_norm: Literal["", "head", "all", "rank"] = ""
    qk_norm_switch: str = ""
    positions: tuple[str, int] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    sliding_every: int = 0
    window_switch: bool = False
    gated_sharing: bool = False
    correction_bias: bool = False
    router_float32: bool = False
    state: Literal["", "convolution", "mamba", "mamba2", "delta"] = ""
    side_by_side: bool = False
    one_mixer: bool = False
    state_norm: str = ""
    state_dtype: str = ""
    output_gate: Flag = False
    separate_gate: Literal["", "element", "gating"] = ""
    sinks: bool = False
    window_heads: bool = False
    expert_bias: bool = False
    dense_width: str = ""
    chunked: bool = False
    indexed: bool = False
    full_heads: bool = False
    beside_experts: bool = False
    unless: tuple[str, ...] = ()
    only_with: tuple[str, ...] = ()


_ALL: tuple[StagePart, ...] = ("embedding", "norm", "head")
_TIED = {"tie_word_embeddings": True}
_DELTA = {
    "full_attention_interval": 4, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "attn_output_gate": True,
}  # fmt: skip
_QWEN3_NEXT = Traits(
    state="delta", qk_norm="head", qkv_bias="qkv_bias", output_gate="attn_output_gate", gated_sharing=True,
    on_all_stages=("embedding", "head"),
    defaults=_DELTA | {"decoder_sparse_step": 1, "shared_expert_intermediate_size": 512},
)  # fmt: skip
_QWEN3_5 = Traits(
    state="delta", qk_norm="head", qkv_bias="qkv_bias", output_gate="attn_output_gate", on_all_stages=("embedding",),
    defaults=_DELTA,
)  # fmt: skip
_QWEN3_5_MOE = Traits(
    state="delta", qk_norm="head", qkv_bias="qkv_bias", output_gate="attn_output_gate", gated_sharing=True,
    on_all_stages=("embedding",), defaults=_DELTA | {"shared_expert_intermediate_size": 512},
)  # fmt: skip
_MIMO_V2 = Traits(
    qkv_bias="attention_bias", correction_bias=True, router_float32=True, window_heads=True,
    defaults={"max_position_embeddings": 32768},
)  # fmt: skip
_QWEN2 = Traits(qkv_bias=True, window_switch=True)
_QWEN3 = Traits(qk_norm="head", window_switch=True)
_QWEN3_MOE = Traits(qk_norm="head", window_switch=True, on_all_stages=_ALL, defaults={"decoder_sparse_step": 1})
_INDEXED = Traits(correction_bias=True, indexed=True)
_GEMMA4 = Traits(
    norms=4, qk_norm="head", sliding_every=6, on_all_stages=_ALL, full_heads=True, output_bias="attention_bias",
    beside_experts=True,
    defaults=_TIED
    | {"head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "hidden_size_per_layer_input": 256}
    | {"vocab_size": 262144, "vocab_size_per_layer_input": 262144, "max_position_embeddings": 131072},
)  # fmt: skip
_LLAMA_BIAS = ("attention_bias", "bias")
_LLAMA = Traits(qkv_bias=_LLAMA_BIAS, output_bias=_LLAMA_BIAS)

ARCHITECTURES: Mapping[str, Traits] = {
    "afmoe": Traits(
        norms=4, qkv_bias=False, mlp_bias=False, qk_norm="head", separate_gate="element", correction_bias=True,
        router_float32=True, sliding_every=4,
        defaults={"head_dim": 128, "num_dense_layers": 1, "num_shared_experts": 2, "sliding_window": 1024},
    ),
    "apertus": Traits(gated=False, qk_norm="head"),
    "aquila": _LLAMA,
    "arcee": Traits(gated=False, output_bias="attention_bias"),
    "baichuan": Traits(qkv_bias=False, mlp_bias=False, packed="qkv"),
    "bloom": Traits(
        names={"hidden_size": "n_embed"}, norm_bias=True, embedding_norm=True, qkv_bias=True, output_bias=True,
        mlp_bias=True, gated=False, on_all_stages=_ALL, defaults=_TIED,
    ),
    "chatglm": Traits(
        names={"vocab_size": "padded_vocab_size", "intermediate_size": "ffn_hidden_size"},
        qkv_bias=("add_qkv_bias", "add_bias_linear"), output_bias="add_bias_linear", mlp_bias="add_bias_linear",
        packed="all", grouped="multi_query_attention", on_all_stages=_ALL,
        defaults={"rmsnorm": True, "post_layer_norm": True, "multi_query_group_num": 1},
        only_with=("rmsnorm", "post_layer_norm"), unless=("position_encoding_2d", "quantization_bit"),
    ),
    "cohere": Traits(norms=1, qk_norm="all", qk_norm_switch="use_qk_norm", on_all_stages=_ALL, defaults=_TIED),
    "cohere2": Traits(norms=1, on_all_stages=_ALL, defaults=_TIED, sliding_every=4),
    "deepseek": Traits(),
    "deepseek_v2": Traits(),
    "deepseek_v3": Traits(correction_bias=True),
    "deepseek_v32": _INDEXED,
    "dots1": Traits(qk_norm="head", correction_bias=True),
    "ernie4_5": Traits(qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias", defaults=_TIED),
    "ernie4_5_moe": Traits(correction_bias=True, router_float32=True, defaults=_TIED, unless=("use_bias",)),
    "exaone": _LLAMA,
    "exaone4": Traits(qk_norm="head"),
    "exaone_moe": Traits(qk_norm="head", correction_bias=True, sliding_every=4),
    "falcon": Traits(
        names={"hidden_size": "n_embed"}, norm_bias=True, parallel_norms=True, qkv_bias="bias", output_bias="bias",
        mlp_bias="bias", gated=False, grouped="new_decoder_architecture", on_all_stages=_ALL,
        defaults=_TIED | {"multi_query": True, "parallel_attn": True, "max_position_embeddings": 2048},
    ),
    "falcon_h1": Traits(
        qkv_bias=False, mlp_bias=False, state="mamba2", side_by_side=True, state_norm="mamba_rms_norm",
        defaults={"mamba_expand": 2, "mamba_conv_bias": True},
    ),
    "gemma": Traits(on_all_stages=_ALL, defaults=_TIED),
    "gemma2": Traits(
        norms=4, sliding_every=2, on_all_stages=_ALL, defaults=_TIED | {"head_dim": 256, "sliding_window": 4096},
    ),
    "gemma3_text": Traits(
        norms=4,
        qk_norm="head",
        sliding_every=6,
        on_all_stages=_ALL,
        defaults=_TIED
        | {"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208}
        | {"sliding_window": 4096, "sliding_window_pattern": 6, "max_position_embeddings": 131072},
    ),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": replace(_GEMMA4, defaults={**_GEMMA4.defaults, "hidden_size_per_layer_input": 0}),
    "glm": Traits(defaults={"attention_bias": True}),
    "glm4": Traits(norms=4, defaults={"attention_bias": True}),
    "glm4_moe": Traits(qk_norm="head", qk_norm_switch="use_qk_norm", correction_bias=True, router_float32=True),
    "glm4_moe_lite": Traits(correction_bias=True, router_float32=True, defaults={"first_k_dense_replace": 1}),
    "glm4v_moe_text": Traits(
        correction_bias=True, router_float32=True, defaults={"attention_bias": True, "first_k_dense_replace": 1},
    ),
    "glm4v_text": Traits(norms=4, defaults={"attention_bias": True}),
    "glm_moe_dsa": _INDEXED,
    "gpt2": Traits(
        norm_bias=True, qkv_bias=True, output_bias=True, mlp_bias=True, gated=False, positions=("n_positions", 0),
        on_all_stages=_ALL, defaults=_TIED, unless=("add_cross_attention",),
    ),
    "gpt_neox": Traits(
        norm_bias=True, qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias=True, gated=False,
        defaults={"attention_bias": True},
    ),
    "gpt_oss": Traits(
        qkv_bias=True, output_bias=True, sinks=True, expert_bias=True, sliding_every=2, on_all_stages=_ALL,
        defaults={"sliding_window": 128},
    ),
    "gptj": Traits(norms=1, norm_bias=True, mlp_bias=True, head_bias=True, gated=False, on_all_stages=_ALL),
    "granite": _LLAMA,
    "granitemoe": Traits(on_all_stages=_ALL),
    "granitemoehybrid": Traits(
        output_bias="attention_bias", state="mamba2", dense_width="shared_intermediate_size", on_all_stages=_ALL,
        defaults={"mamba_expand": 2, "mamba_conv_bias": True},
    ),
    "granitemoeshared": Traits(on_all_stages=_ALL),
    "hunyuan_v1_dense": Traits(qk_norm="head", output_bias="attention_bias"),
    "hy_v3": Traits(
        qkv_bias=False, mlp_bias=False, qk_norm="head", qk_norm_switch="qk_norm", correction_bias=True,
        router_float32=True, on_all_stages=_ALL, defaults={"first_k_dense_replace": 1},
    ),
    "internlm": _LLAMA,
    "internlm2": Traits(qkv_bias=False, mlp_bias=False, on_all_stages=_ALL),
    "internlm3": Traits(qkv_bias="qkv_bias", output_bias="bias"),
    "jamba": Traits(
        qkv_bias=False, mlp_bias=False, state="mamba", on_all_stages=_ALL,
        defaults={"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1}
        | {"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": True},
    ),
    "kimi_k2": Traits(correction_bias=True),
    "laguna": Traits(
        qk_norm="head", output_bias="attention_bias", separate_gate="gating", correction_bias=True,
        defaults={"head_dim": 128, "gating": True, "shared_expert_intermediate_size": 512, "sliding_window": 512}
        | {"first_k_dense_replace": 1},
    ),
    "lfm2": Traits(qkv_bias=False, mlp_bias=False, qk_norm="head", state="convolution", defaults=_TIED),
    "lfm2_moe": Traits(qkv_bias=False, mlp_bias=False, qk_norm="head", state="convolution", defaults=_TIED),
    "llama": _LLAMA,
    "llama4_text": Traits(
        dense_width="intermediate_size_mlp", chunked=True,
        defaults={"head_dim": 128, "n_shared_experts": 1, "interleave_moe_layer_step": 1, "attention_chunk_size": 8192}
        | {"no_rope_layer_interval": 4},
    ),
    "mellum": Traits(qk_norm="head", output_bias="attention_bias"),
    "mimo": Traits(qkv_bias=True),
    "mimo_v2": _MIMO_V2,
    "mimo_v2_flash": _MIMO_V2,
    "minicpm": Traits(on_all_stages=_ALL, defaults=_TIED),
    "minimax_m2": Traits(qk_norm="rank", correction_bias=True, router_float32=True),
    "ministral3": Traits(),
    "mistral": Traits(),
    "mixtral": Traits(on_all_stages=_ALL),
    "nemotron": Traits(norm_bias=True, output_bias="attention_bias", gated=False),
    "nemotron_h": Traits(
        norms=1, qkv_bias=False, gated=False, state="mamba2", one_mixer=True, state_dtype="float32",
        correction_bias=True, on_all_stages=_ALL, defaults={"use_conv_bias": True},
    ),
    "olmo2": Traits(qk_norm="all", output_bias="attention_bias"),
    "olmo3": Traits(qk_norm="all", output_bias="attention_bias", sliding_every=4),
    "olmoe": Traits(qk_norm="all", output_bias="attention_bias", on_all_stages=_ALL),
    "opt": Traits(
        norm_bias=True, qkv_bias="enable_bias", output_bias="enable_bias", mlp_bias="enable_bias", gated=False,
        positions=("max_position_embeddings", 2), on_all_stages=_ALL, defaults=_TIED | {"enable_bias": True},
    ),
    "orion": Traits(norm_bias=True, on_all_stages=_ALL),
    "phi": Traits(
        norms=1, norm_bias=True, qkv_bias=True, output_bias=True, mlp_bias=True, head_bias=True, gated=False,
        unless=("qk_layernorm",),
    ),
    "phi3": Traits(),
    "phimoe": Traits(norm_bias=True, output_bias="attention_bias", on_all_stages=_ALL, unless=("lm_head_bias",)),
    "qwen": Traits(qkv_bias=True, halved_mlp=True, packed="qkv", only_with=("no_bias",),
                   defaults={"no_bias": True}),
    "qwen2": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": Traits(
        qkv_bias=True, window_switch=True, gated_sharing=True, on_all_stages=_ALL, defaults={"decoder_sparse_step": 1}
    ),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_5_moe_text": _QWEN3_5_MOE,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": Traits(output_bias="attention_out_bias", defaults={"attention_bias": True}),
    "smollm3": Traits(output_bias="attention_bias", window_switch=True, defaults=_TIED),
    "solar": _LLAMA,
    "stablelm": Traits(
        norm_bias=True, qkv_bias="use_qkv_bias", on_all_stages=_ALL, unless=("qk_layernorm", "use_parallel_residual"),
    ),
    "starcoder2": Traits(
        norm_bias=True, qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias", gated=False,
        defaults=_TIED | {"use_bias": True},
    ),
    "xverse": _LLAMA,
    "Yi": _LLAMA,
}  # fmt: skip

LAST_VERSIONS: Mapping[str, str] = {
    "aquila": "0.24.0", "baichuan": "0.23.0", "internlm": "0.23.0", "mpt": "0.28.0", "qwen": "0.23.0",
    "xverse": "0.23.0", "Yi": "0.3.0",
}  # fmt: skip
"""The last vLLM version with a class for a type that the pinned version has none for
(`_PREVIOUSLY_SUPPORTED_MODELS` in vllm/model_executor/models/registry.py; Yi is older than that)."""

UNKNOWN = Traits()
"""Assumptions for other architectures, whose weights are not computed: usual windows and KV heads."""
