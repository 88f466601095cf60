"""Reads the experts of a model from its `config.json`."""

from pdinference.planning.memory.model.architectures import Traits
from pdinference.planning.memory.model.config import INTERMEDIATE, Checked, UnusableConfigError
from pdinference.planning.memory.model.shape import MoE

_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_PER_TOKEN = ("num_experts_per_tok", "moe_k")
_SHARED = ("n_shared_experts", "moe_num_shared_experts")
_MOST_EXPERTS = 65536
"""In all layers together; far beyond any model."""


def experts_of(traits: Traits, text: Checked, layers: int) -> MoE | None:
    """The experts; None where the model has none.

    Raises:
        UnusableConfigError: A number is missing, or no model has so many experts.
    """
    experts = text.optional(*_EXPERTS)
    if experts is None:
        return None
    if experts * layers > _MOST_EXPERTS:
        raise UnusableConfigError(
            f"config.json has {experts} experts in each of {layers} layers: no model has so many."
        )
    width = text.optional("moe_intermediate_size") or text.number(*INTERMEDIATE)
    shared = text.optional("shared_expert_intermediate_size") or width * (text.optional(*_SHARED) or 0)
    return MoE(
        experts=experts,
        per_token=text.number(*_PER_TOKEN),
        intermediate=width,
        layers=_expert_layers(text, layers),
        shared_intermediate=shared,
        gated_sharing=traits.gated_sharing,
        correction_bias=text.values.get("topk_method") == "noaux_tc" or traits.correction_bias,
    )


def _expert_layers(text: Checked, layers: int) -> frozenset[int]:
    step = text.optional("decoder_sparse_step", "moe_layer_freq", "moe_layer_interval") or 1
    first = text.optional("first_k_dense_replace") or text.optional("moe_layer_start_index") or 0
    last = text.optional("moe_layer_end_index") or layers - 1
    dense = set(text.values.get("mlp_only_layers") or ())
    # Qwen and ERNIE count from one (models/qwen2_moe.py, ernie45_moe.py), DeepSeek from zero (models/deepseek_v2.py).
    offset = 1 if text.values.keys() & {"decoder_sparse_step", "moe_layer_interval"} else 0
    return frozenset(i for i in range(first, min(layers, last + 1)) if i not in dense and (i + offset) % step == 0)
