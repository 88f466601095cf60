"""The tensors of layers that keep a state, as one rank holds them.

Source: vllm/model_executor/layers/mamba/{mamba_mixer,mamba_mixer2,short_conv}.py and gdn/qwen_gdn_linear_attn.py. Inner
widths and heads are sharded; what is computed in float32 has four bytes an element.

Tests: tests/memory/test_newer.py
"""

from collections.abc import Iterator

from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.model.state import DeltaNet, Mamba1, Mamba2, ShortConvolution
from pdinference.memory.settings import Settings
from pdinference.memory.weights.linear import Tensor, linear, plain
from pdinference.memory.weights.modules import modules

_KIND = "state"
_FLOAT32 = 4


def state_layer(facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    """The tensors of one layer."""
    match facts.state:
        case ShortConvolution() as state:
            yield from _short_convolution(state, facts, settings, layer)
        case Mamba1() as state:
            yield from _mamba1(state, facts, settings)
        case Mamba2() as state:
            yield from _mamba2(state, facts, settings, layer)
        case DeltaNet() as state:
            yield from _delta_net(state, facts, settings, layer)


def _linear(facts: ModelFacts, settings: Settings, layer: int, names: str, sizes: tuple[int, int]) -> Tensor:
    """A linear layer of some output and input elements; `names` are its own and those of what it is made of."""
    return linear(settings, _KIND, modules(facts, layer, _KIND, *names.split()), *sizes)


def _short_convolution(state: ShortConvolution, facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    width = state.width // settings.tensor
    yield plain(settings, _KIND, width * state.kernel)
    yield _linear(facts, settings, layer, "in_proj", (3 * width, state.width))
    yield _linear(facts, settings, layer, "out_proj", (state.width, width))
    if state.bias:
        yield plain(settings, _KIND, 4 * width + facts.hidden)


def _mamba1(state: Mamba1, facts: ModelFacts, settings: Settings) -> Iterator[Tensor]:
    """Its linear layers are never quantised (they get no `quant_config`)."""
    width, inner = state.width // settings.tensor, state.rank + 2 * state.state
    yield plain(settings, _KIND, width * (state.kernel + (1 if state.convolution_bias else 0)))
    for outputs, inputs in ((2 * width, facts.hidden), (inner, width), (width, state.rank), (facts.hidden, width)):
        yield Tensor(_KIND, (outputs * inputs * settings.dtype_bytes,), (outputs, inputs))
    yield plain(settings, _KIND, 2 * width)
    yield Tensor(_KIND, (width * state.state * _FLOAT32,))
    yield plain(settings, "norm", inner)
    if state.bias:
        yield plain(settings, _KIND, 2 * width + facts.hidden)


def _mamba2(state: Mamba2, facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    width, heads = state.width // settings.tensor, state.heads // settings.tensor
    convolved = state.convolved(settings.tensor)
    outputs = width + convolved + heads
    yield plain(settings, _KIND, convolved * (state.kernel + (1 if state.convolution_bias else 0)))
    yield _linear(facts, settings, layer, "in_proj", (outputs, facts.hidden))
    yield _linear(facts, settings, layer, "out_proj", (facts.hidden, width))
    yield plain(settings, _KIND, 2 * heads)
    yield Tensor(_KIND, (heads * _FLOAT32,))
    if state.norm:
        yield plain(settings, "norm", width)
    if state.bias:
        yield plain(settings, _KIND, outputs + facts.hidden)


def _delta_net(state: DeltaNet, facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    keys, values = state.keys // settings.tensor, state.values // settings.tensor
    heads = state.value_heads // settings.tensor
    yield plain(settings, _KIND, (2 * keys + values) * state.kernel)
    yield _linear(facts, settings, layer, "in_proj_qkvz in_proj_qkv in_proj_z", (2 * (keys + values), facts.hidden))
    yield _linear(facts, settings, layer, "in_proj_ba in_proj_b in_proj_a", (2 * heads, facts.hidden))
    yield _linear(facts, settings, layer, "out_proj", (facts.hidden, values))
    yield plain(settings, _KIND, heads)
    yield Tensor(_KIND, (heads * _FLOAT32,))
    yield plain(settings, "norm", state.value_dim)
