"""The draft of speculative decoding: a small model beside the model, or heads on its last hidden state.

Source: `SpeculativeConfig` in vllm/config/speculative.py for the methods, `LLMBaseProposer` in
vllm/v1/spec_decode/llm_base_proposer.py for what a draft shares with its model.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from pdinference.api.words import cut
from pdinference.memory.model.config import (
    Checked,
    Config,
    LayerIndexes,
    Size,
    StrictModel,
    Switch,
    UnusableConfigError,
    checked,
)
from pdinference.memory.model.model_facts import model_facts
from pdinference.memory.model.shape import ModelFacts

WITHOUT: Final = ("ngram", "ngram_gpu", "suffix")
"""Methods that propose tokens without a draft."""
_LAYERS_WITHIN = ("transformer_layer_config", "model")
"""Members with the layers of a draft, if a file has them apart (the library speculators; `model_type: eagle`)."""
_OPTIONS_WITHIN = ("eagle_config", "dflash_config")
_AUXILIARY = 3
"""Layers of the model whose hidden states EAGLE-3 takes, unless its file lists them."""
_MOST_HEADS = 64
_MOST_LAYERS = 128
"""More take too long where the file leaves out different modules of each; no draft has half as many."""
_MEDUSA_HEADS = 5
_LONGEST_REASON = 400
_MODEL = "draft_model"
_KINDS = ("speculators_model_type", "model_type")
"""Members that may name the method, where neither the option nor the name of the draft does."""
NO_CONFIG: Final = "its config.json is not known here"
"""Why a draft is not counted whose method is known."""


class DraftMembers(StrictModel):
    """The members of a draft's config.json that are read, beside those of any model."""

    draft_vocab_size: Size = None
    target_hidden_size: Size = None
    num_aux_hidden_states: Size = None
    eagle_aux_hidden_state_layer_ids: LayerIndexes = None
    aux_hidden_state_layer_ids: LayerIndexes = None
    target_layer_ids: LayerIndexes = None
    use_aux_hidden_state: Switch = None
    norm_before_fc: Switch = None
    fc_norm: Switch = None
    hidden_size: Size = None
    num_hidden_layers: Size = None
    medusa_num_layers: Size = None
    num_heads: Annotated[int, Field(ge=1, le=_MOST_HEADS)] | None = None
    medusa_num_heads: Annotated[int, Field(ge=1, le=_MOST_HEADS)] | None = None
    original_lm_head: Switch = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft, which vLLM loads on the last pipeline stage.

    Attributes:
        method: As vLLM calls it.
        facts: Its layers; None where it has none that attend.
        whole: Elements beside its layers that each rank has: projections and norms.
        heads: Rows of each head of its own over a vocabulary; ranks share them.
        hidden: Elements of a row.
        own_embedding: Whether it has an embedding of its own; otherwise it uses the model's, unless there are several
            stages.
        wide_input: Whether its first layer attends to two hidden states beside one another (EAGLE-3).
        map_bytes: Bytes of the table from its words to the model's.
        uncounted: Why the draft is not counted; empty where it is.
    """

    method: str
    facts: ModelFacts | None = None
    whole: int = 0
    heads: tuple[int, ...] = ()
    hidden: int = 0
    own_embedding: bool = False
    wide_input: bool = False
    map_bytes: int = 0
    uncounted: str = ""

    @property
    def layers(self) -> int:
        """Layers with a KV cache of their own."""
        return self.facts.layers if self.facts else 0


def draft_of(method: str, config: Config | None, model: ModelFacts, tokens: int) -> Draft:
    """The draft of a method.

    Args:
        method: `draft_model`, `eagle`, `eagle3` and others, as vLLM calls them.
        config: The draft's config.json, which is untrusted; None where it is not known.
        model: The model that it proposes tokens for.
        tokens: How many it proposes at once; 0 where that is not stated.
    """
    if method == _MODEL and config is not None:
        method = next(
            (kind for name in _KINDS if isinstance(kind := config.get(name), str) and kind in _FORMULAS), method
        )
    formula = _FORMULAS.get(method)
    if formula is None:
        return Draft(method, uncounted="drafts of this kind are not known here")
    if config is None:
        return Draft(method, uncounted=NO_CONFIG)
    layers = next((found for name in _LAYERS_WITHIN if isinstance(found := config.get(name), Mapping)), config)
    found = checked(DraftMembers, {**_options_within(config), **layers, **config})
    if found.unfit:
        return Draft(method, uncounted=_unfit(found.unfit.values()))
    try:
        return formula(_Given(method, found, layers, model, tokens))
    except (UnusableConfigError, _UncountedError) as error:
        return Draft(method, uncounted=cut(str(error).removesuffix("."), _LONGEST_REASON))


def _unfit(reasons: Iterable[str]) -> str:
    return cut(
        f"its config.json has members that cannot be read: {' '.join(reasons)}".removesuffix("."), _LONGEST_REASON
    )


def _options_within(config: Config) -> dict[str, Any]:
    nested = (config.get(name) for name in _OPTIONS_WITHIN)
    return {key: value for part in nested if isinstance(part, Mapping) for key, value in part.items()}


@dataclass(frozen=True, slots=True)
class _Given:
    """What is known of a draft: its members, the config of its layers, and its model."""

    method: str
    members: Checked
    layers: Config
    model: ModelFacts
    tokens: int


class _UncountedError(ValueError):
    """A draft is not counted; the message says why."""


def _layers(given: _Given) -> ModelFacts:
    """The layers of a draft.

    Raises:
        UnusableConfigError: A member is missing that every plan needs.
        _UncountedError: They are not known here.
    """
    facts = model_facts(given.layers)
    if facts.unfit:
        raise _UncountedError(_unfit(facts.unfit))
    if not facts.architecture_known or facts.state is not None:
        raise _UncountedError(f"the tensors of a draft of model type {facts.model_type!r} are not known here")
    if facts.layers > _MOST_LAYERS:
        raise _UncountedError(f"it has {facts.layers} layers, and at most {_MOST_LAYERS} are counted")
    if facts.quantization is not None and (facts.quantization.bits == 0 or facts.quantization.experts_only):
        raise _UncountedError(f"how many bytes its quantisation takes ({facts.quantization.method}) is not known here")
    return facts


def _model(given: _Given) -> Draft:
    """A whole model, which shares nothing."""
    return Draft(given.method, _layers(given))


def _eagle(given: _Given) -> Draft:
    """EAGLE: a projection of a hidden state and an embedding, and layers, the first without its first norm.

    Source: vllm/model_executor/models/llama_eagle.py; the head is the model's.
    """
    facts = _layers(given)
    whole = 2 * facts.hidden**2 - facts.norm_elements
    return Draft(given.method, facts, whole, own_embedding=facts.hidden != given.model.hidden)


def _eagle3(given: _Given) -> Draft:
    """EAGLE-3: a projection of hidden states of several layers, a norm more in each layer, and a head of its own.

    Source: vllm/model_executor/models/{llama,qwen3}_eagle3.py.
    """
    facts = _layers(given)
    members = given.members
    taken = 0 if members.values.get("use_aux_hidden_state") is False else _taken(members, facts, _AUXILIARY)
    norms = sum(bool(members.values.get(name)) for name in ("norm_before_fc", "fc_norm"))
    whole = taken * (facts.hidden + norms) + facts.norm_elements * (facts.layers + 1)
    rows = members.optional("draft_vocab_size") or facts.vocab
    return Draft(
        given.method, facts, whole, (rows,), facts.hidden, facts.hidden != given.model.hidden, wide_input=True,
        map_bytes=0 if rows == given.model.vocab else 8 * rows,
    )  # fmt: skip


def _dflash(given: _Given) -> Draft:
    """DFlash: a projection of hidden states of several layers, and layers that compute a block of tokens at once.

    It has a norm of that projection, one after the layers, and the embedding of a token that is not known yet.

    Source: vllm/model_executor/models/qwen3_dflash.py; the head is the model's unless it has fewer words.
    """
    facts = _layers(given)
    whole = _taken(given.members, facts, facts.layers) * facts.hidden + 2 * facts.norm_elements + facts.hidden
    rows = given.members.optional("draft_vocab_size") or given.model.vocab
    own = rows != given.model.vocab
    return Draft(
        given.method, facts, whole, (rows,) if own else (), facts.hidden, facts.hidden != given.model.hidden,
        map_bytes=8 * rows if own else 0,
    )  # fmt: skip


def _taken(found: Checked, facts: ModelFacts, default: int) -> int:
    """Elements of the hidden states that a draft takes of a token."""
    lists = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids")
    listed = next((len(ids) for name in lists if (ids := found.values.get(name))), default)
    return (found.optional("num_aux_hidden_states") or listed) * (found.optional("target_hidden_size") or facts.hidden)


def _medusa(given: _Given) -> Draft:
    """Medusa: heads on the last hidden state, each with a few layers of its own; they have no KV cache.

    Source: vllm/model_executor/models/medusa.py. vLLM takes the size of the vocabulary from the model, and makes as
    many heads as tokens are proposed (`num_lookahead_tokens` in vllm/transformers_utils/configs/medusa.py).
    """
    number = given.tokens or given.members.optional("medusa_num_heads", "num_heads") or _MEDUSA_HEADS
    number = min(number, _MOST_HEADS)
    depth = given.members.optional("medusa_num_layers", "num_hidden_layers") or 1
    hidden = given.members.optional("hidden_size") or given.model.hidden
    rows = (given.model.vocab,) * (1 if given.members.values.get("original_lm_head") else number)
    return Draft(given.method, None, number * depth * hidden**2, rows, hidden)


_FORMULAS: Final[Mapping[str, Callable[[_Given], Draft]]] = {
    "dflash": _dflash,
    "draft_model": _model,
    "eagle": _eagle,
    "eagle3": _eagle3,
    "medusa": _medusa,
}
