"""Reads from a `config.json` to how many tokens each layer attends.

Tests: tests/memory/test_kv.py, tests/memory/test_newer.py
"""

from collections.abc import Iterator

from pdinference.memory.model.architectures import Traits
from pdinference.memory.model.config import Checked, UnusableConfigError

WINDOW = "sliding_window"
"""Null means that there is none; any other member that is null is one that is not given."""


def windows_of(traits: Traits, text: Checked, layers: int, attention: frozenset[int]) -> tuple[int | None, ...]:
    """The window of each layer; None where it attends to everything, or not at all.

    Args:
        traits: Of the architecture.
        text: Members of config.json.
        layers: Layers of the model.
        attention: Those that attend.

    Raises:
        UnusableConfigError: The layers are listed for fewer layers than there are.
    """
    windows = _windows(traits, text, layers)
    return tuple(window if layer in attention else None for layer, window in enumerate(windows))


def _windows(traits: Traits, text: Checked, layers: int) -> tuple[int | None, ...]:
    """The windows as vLLM's models read them.

    Source: vllm/model_executor/models/{llama,gemma2,gemma3}.py (`layer_types`), and for a window without layer types
    vllm/model_executor/layers/attention/attention.py, which applies it to every layer.
    """
    window, values = text.optional(WINDOW), text.values
    if traits.chunked:
        return tuple(_chunks(text, layers))
    if window is None or (traits.window_switch and not values.get("use_sliding_window")):
        return (None,) * layers
    if listed := _listed(traits, text, layers):
        return tuple(window if slides else None for slides in listed)
    pattern = _pattern(values.get("sliding_window_pattern")) or traits.sliding_every
    if pattern:
        return tuple(window if (index + 1) % pattern else None for index in range(layers))
    if traits.window_switch:
        stated = values.get("max_window_layers")
        first = layers if stated is None else stated
        return tuple(window if index >= first else None for index in range(layers))
    return (window,) * layers


def _listed(traits: Traits, text: Checked, layers: int) -> list[bool]:
    """Whether each layer has the window; empty where config.json has no list.

    Source: `is_compressed_softmax_layer` in vllm/model_executor/models/mimo_v2.py for `hybrid_layer_pattern`.
    """
    name = "hybrid_layer_pattern" if traits.window_heads else "layer_types"
    listed = text.values.get(name) or ()
    if listed and len(listed) < layers:
        raise UnusableConfigError(f"{name} has {len(listed)} entries for {layers} layers.")
    return [kind in {1, "sliding_attention"} for kind in listed[:layers]]


def _chunks(text: Checked, layers: int) -> Iterator[int | None]:
    """The chunk of each layer; those without rotary positions attend to everything (`Llama4Attention`)."""
    chunk, rotary = text.optional("attention_chunk_size"), text.values.get("no_rope_layers")
    step = text.number("no_rope_layer_interval")
    for layer in range(layers):
        is_rotary = rotary[layer] if rotary and layer < len(rotary) else (layer + 1) % step
        yield chunk if is_rotary else None


def _pattern(value: int | str | None) -> int:
    """Of how many layers the last one attends to everything; EXAONE writes `LLLG` for 4."""
    return len(value) if isinstance(value, str) else value or 0
