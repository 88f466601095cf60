"""What a token and a request keep on a device, with how it was computed.

Tests: tests/memory/test_kv.py, tests/memory/test_newer.py
"""

from pdinference.memory import kv, ways_out
from pdinference.memory.figures import MIB, Figure, computed, unknown
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings
from pdinference.memory.weights.attention import local_kv_heads
from pdinference.memory.weights.tensors import stage_layers


def state_bytes(facts: ModelFacts, settings: Settings, stage: int) -> Figure | None:
    """Bytes of the states of one request on a rank of a stage; None where no layer of the model keeps one."""
    if facts.state is None or facts.unfit:
        return None
    size = kv.request_bytes(facts, settings, stage)
    blocks = next(group.cache.states for group in kv.groups_of(facts, settings) if group.cache.states)
    note = (
        f"{facts.state_layers} of {facts.layers} layers keep a state. vLLM sets aside {blocks} blocks of each such "
        "layer for a request, each as large as a block of attention."
    )
    return computed(size, note)


def token_bytes(facts: ModelFacts, settings: Settings, stage: int) -> Figure:
    """Bytes of the KV cache of one token on a rank of a stage."""
    if facts.unfit:
        return unknown(facts.unfit_note)
    if facts.other_state:
        return unknown(
            f"Layers of {facts.model_type} keep something else than a KV cache, which is not computed here. "
            f"{ways_out.MEASURED}"
        )
    if facts.indexer is not None and settings.kv_bytes == 1:
        return unknown(f"How sparse attention stores an FP8 KV cache depends on the device. {ways_out.MEASURED}")
    return computed(kv.token_bytes(facts, settings, stage), _token_note(facts, settings, stage))


def _token_note(facts: ModelFacts, settings: Settings, stage: int) -> str:
    """How the bytes of a token were computed."""
    kept = [layer for layer in stage_layers(settings, stage) if kv.layer_token_bytes(facts, settings, layer)]
    if facts.mla is not None:
        each = f"({facts.mla.kv_lora_rank} + {facts.mla.qk_rope_head_dim}) elements of MLA, whole on every rank,"
    else:
        shapes = sorted({facts.kv_shape(layer) for layer in kept})
        each = " or ".join(_elements(facts, local_kv_heads(heads, settings.tensor), size) for heads, size in shapes)
    note = f"{len(kept)} layers x {each} x {settings.kv_bytes} bytes."
    if stage == settings.stages - 1 and (more := sum(kv.proposing_token_bytes(facts, settings))):
        note += f" {more:,} bytes more in layers that propose tokens."
    if facts.indexer is not None:
        note += f" {len(facts.indexer.layers)} of {facts.layers} layers have an index for sparse attention as well."
    if sliding := facts.windowed_layers:
        note += f" {sliding} of {facts.layers} layers keep only their {'chunk' if facts.chunked else 'sliding window'}."
    if size := kv.request_bytes(facts, settings, stage):
        note += f" {facts.state_layers} of {facts.layers} layers keep a state, {size / MIB:.1f} MiB a request."
    return note


def _elements(facts: ModelFacts, kv_heads: int, size: int) -> str:
    """Elements of a token in a layer, on one rank."""
    if facts.value_dim:
        return f"{kv_heads} KV heads x ({size} + {facts.value_dim}) elements"
    return f"2 x {kv_heads} KV heads x {size} elements"


def tokens_note(groups: tuple[kv.LayerGroup, ...], settings: Settings) -> str:
    """What the tokens that fit are."""
    block = min((group.cache.block for group in groups if group.cache.block), default=settings.block_size)
    note = f"As vLLM logs it, in whole blocks of {block}."
    return f"{note} Concurrency x longest length, over {len(groups)} groups of layers." if len(groups) > 1 else note
