"""Options of vLLM in `args` that change how much memory a role takes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.memory.model.shape import ModelFacts

_LARGEST_GRAPH = 512
_LARGEST_GRAPHS = {"gpt_oss": 1024}
"""The default of the largest graph, in tokens: `GptOssForCausalLMConfig` in vllm/model_executor/models/config.py."""
_MODALITIES = ("image", "video", "audio")
_MOST = 2**20
MTP = "mtp"
"""The method whose draft is layers of the model's own; also under older names, such as `deepseek_mtp`."""
DRAFT_MODEL = "draft_model"
"""The method whose draft is a whole model."""
_NAMED = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
"""What the name of a draft contains, and the method."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options that matter here.

    Attributes:
        encodes: Whether the model takes images; false with language-model-only, or where the limit of each is 0.
        redundant_experts: Copies of experts that EPLB adds in each layer.
        largest_graph: Tokens of the largest CUDA graph, if set.
        graph_sizes: How many tokens the CUDA graphs have, if listed.
        without_graphs: Whether `cudagraph_mode` is `NONE`.
        speculative: The method of speculative decoding; empty without.
        speculated: Tokens that it proposes at once.
        draft_model: Folder or repository of its draft; empty where none is named.
    """

    encodes: bool = True
    redundant_experts: int = 0
    largest_graph: int | None = None
    graph_sizes: tuple[int, ...] | None = None
    without_graphs: bool = False
    speculative: str = ""
    speculated: int = 0
    draft_model: str = ""

    def graphs(self, seqs: int, tokens: int, facts: ModelFacts) -> tuple[int, int]:
        """CUDA graphs of mixed steps, and of steps in which each request gets one token.

        Source: `_set_cudagraph_sizes` in vllm/config/vllm.py: 1, 2, 4, then steps of 8 below 256 and of 16 above.
        """
        if self.without_graphs:
            return 0, 0
        query = 1 + self.speculated
        default = min(2 * seqs * query, _LARGEST_GRAPHS.get(facts.model_type, _LARGEST_GRAPH))
        largest = min(tokens, self.largest_graph or default)
        sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)}
        if self.graph_sizes is not None:
            largest, sizes = tokens, set(self.graph_sizes)
        mixed = {size for size in sizes if size <= largest}
        return len(mixed), len({size for size in mixed if size <= seqs * query})


def options_of(arguments: Mapping[str, object]) -> Options:
    """Read the options; what does not fit counts as absent, because vLLM refuses it."""
    compilation = _document(arguments, "compilation-config")
    speculative = _document(arguments, "speculative-config")
    sizes = arguments.get("cudagraph-capture-sizes", compilation.get("cudagraph_capture_sizes"))
    listed = isinstance(sizes, list | tuple) and len(sizes) <= _MOST and all(isinstance(size, int) for size in sizes)
    return Options(
        encodes=not _text_alone(arguments),
        redundant_experts=_redundant(arguments),
        largest_graph=_number(arguments.get("max-cudagraph-capture-size"))
        or _number(compilation.get("max_cudagraph_capture_size")),
        graph_sizes=tuple(sizes) if listed and isinstance(sizes, list | tuple) else None,
        without_graphs=str(compilation.get("cudagraph_mode", "")).upper() == "NONE"
        or _number(compilation.get("mode"), zero=True) == 0,
        speculative=_method(speculative),
        speculated=_number(speculative.get("num_speculative_tokens")) or 0,
        draft_model=str(speculative.get("model") or ""),
    )


def _method(speculative: Mapping[str, Any]) -> str:
    """The method, which vLLM takes from the name of the draft where it is not set.

    Source: `SpeculativeConfig.__post_init__` in vllm/config/speculative.py.
    """
    method, model = str(speculative.get("method") or "").strip("[]"), str(speculative.get("model") or "").lower()
    if method == MTP or method.endswith(f"_{MTP}"):
        return MTP
    if method not in {"", DRAFT_MODEL} or not speculative:
        return method
    if model.strip("[]") == "ngram":
        return "ngram"
    return next((named for mark, named in _NAMED if mark in model), DRAFT_MODEL)


def _text_alone(arguments: Mapping[str, object]) -> bool:
    """Source: `MultiModalConfig` in vllm/config/multimodal.py; a limit is a number or a mapping with `count`."""
    if _on(arguments, "language-model-only"):
        return True
    limits = _document(arguments, "limit-mm-per-prompt")
    counts = [limits[name] for name in _MODALITIES if name in limits]
    return "image" in limits and all(_limit(count) == 0 for count in counts)


def _limit(value: object) -> int | None:
    return _number(value.get("count"), zero=True) if isinstance(value, Mapping) else _number(value, zero=True)


def _redundant(arguments: Mapping[str, object]) -> int:
    """Source: `EPLBConfig` in vllm/config/parallel.py."""
    if not _on(arguments, "enable-eplb"):
        return 0
    own = arguments.get("num-redundant-experts")
    return _number(own) or _number(_document(arguments, "eplb-config").get("num_redundant_experts")) or 0


def _on(arguments: Mapping[str, object], name: str) -> bool:
    return arguments.get(name) in (True, "true", "True", "")


def _document(arguments: Mapping[str, object], name: str) -> Mapping[str, Any]:
    """An option whose value is a mapping, or JSON with one."""
    value = arguments.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    return value if isinstance(value, Mapping) else {}


def _number(value: object, *, zero: bool = False) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_MOST)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not (0 if zero else 1) <= value <= _MOST:
        return None
    return value
