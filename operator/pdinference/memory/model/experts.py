"""Reads the experts of a model from its `config.json`.

Tests: tests/memory/test_newer.py, tests/memory/weights/test_weights.py
"""

from pdinference.memory.model.architectures import UNKNOWN, Traits
from pdinference.memory.model.config import INTERMEDIATE, Checked, UnusableConfigError
from pdinference.memory.model.shape import MoE

_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts")
_WIDTH = ("expert_hidden_dim", "moe_intermediate_size", "expert_intermediate_size")
_SHARED = ("n_shared_experts", "moe_num_shared_experts", "num_shared_experts")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size")
_STEP = (
    "decoder_sparse_step", "moe_layer_freq", "moe_layer_interval", "interleave_moe_layer_step", "expert_layer_period",
)  # fmt: skip
_MOST_EXPERTS = 2**18
"""In all layers together; Kimi K3 has 896 in each of some 90."""


def experts_of(traits: Traits, text: Checked, layers: int, listed: frozenset[int] | None) -> MoE | None:
    """The experts; None where the model has none, or an unknown architecture has other names for its numbers.

    Args:
        traits: Of the architecture.
        text: Members of config.json.
        layers: Layers of the model.
        listed: Layers with experts, if config.json lists what each layer is.

    Raises:
        UnusableConfigError: A number is missing, or no model has so many experts.
    """
    experts = text.optional(*_EXPERTS)
    if experts is None or listed == frozenset():
        return None
    if experts * layers > _MOST_EXPERTS:
        raise UnusableConfigError(
            f"config.json has {experts} experts in each of {layers} layers: no model has so many."
        )
    if traits is UNKNOWN and not (text.optional(*_PER_TOKEN) and text.optional(*_WIDTH, *INTERMEDIATE)):
        return None
    width = text.optional(*_WIDTH) or text.number(*INTERMEDIATE)
    return MoE(
        experts=experts,
        per_token=text.number(*_PER_TOKEN),
        intermediate=width,
        layers=_expert_layers(text, layers) if listed is None else listed,
        shared_intermediate=_shared_width(text, width),
        gated_sharing=traits.gated_sharing,
        correction_bias=_corrects(traits, text),
        router_float32=traits.router_float32 and text.values.get("moe_router_dtype", "float32") == "float32",
        biases=traits.expert_bias,
        latent=text.optional("moe_latent_size"),
        beside_dense=traits.beside_experts,
    )


def _shared_width(text: Checked, width: int) -> int:
    """Width of the experts that every token passes, together."""
    number = text.optional(*_SHARED) or 0
    each = text.optional("moe_shared_expert_intermediate_size") or width
    return text.optional(*_SHARED_WIDTH) or number * each


def _corrects(traits: Traits, text: Checked) -> bool:
    stated = text.values.get("use_expert_bias")
    return text.values.get("topk_method") == "noaux_tc" or (traits.correction_bias if stated is None else bool(stated))


def _expert_layers(text: Checked, layers: int) -> frozenset[int]:
    if kinds := text.values.get("mlp_layer_types"):
        return frozenset(index for index, kind in enumerate(kinds[:layers]) if kind == "sparse")
    if isinstance(chosen := text.values.get("moe_layer_freq"), list):
        return frozenset(index for index, has in enumerate(chosen[:layers]) if has)
    step = text.optional(*_STEP) or 1
    first = text.optional("first_k_dense_replace", "num_dense_layers") or text.optional("moe_layer_start_index") or 0
    last = text.optional("moe_layer_end_index") or layers - 1
    dense = set(text.values.get("mlp_only_layers") or ())
    offset = _offset(text)
    return frozenset(i for i in range(first, min(layers, last + 1)) if i not in dense and (i + offset) % step == 0)


def _offset(text: Checked) -> int:
    """What is added to a layer's index before it is divided by the step.

    Qwen, ERNIE and Llama 4 count from one (models/qwen2_moe.py, ernie45_moe.py, llama4.py), DeepSeek from zero
    (models/deepseek_v2.py), Jamba from an offset of its own.
    """
    if "expert_layer_period" in text.values:
        return -(text.values.get("expert_layer_offset") or 0)
    return 1 if text.values.keys() & {"decoder_sparse_step", "moe_layer_interval", "interleave_moe_layer_step"} else 0
