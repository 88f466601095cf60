"""Bytes of weights on a device: from the spec, the headers of a checkpoint, the architecture, or sizes of files.

Tests: tests/memory/weights/test_weights.py, tests/memory/weights/test_stored.py
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from pdinference.api.words import cut
from pdinference.memory import ways_out
from pdinference.memory.expert_padding import NO_PADDING
from pdinference.memory.figures import GIB, MIB, Figure, computed, unknown
from pdinference.memory.model.quantization import NO_CONFIG, Quantization
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.model.usual_towers import TOO_SMALL
from pdinference.memory.settings import Settings
from pdinference.memory.weights.checkpoint import Checkpoint, KnownWeights, StatedWeights, StoredFiles
from pdinference.memory.weights.drafts import draft_tensors
from pdinference.memory.weights.linear import Tensor
from pdinference.memory.weights.rotary import rotary_bytes
from pdinference.memory.weights.stored import loaded_bytes
from pdinference.memory.weights.tensors import stage_tensors, too_many_kinds

_LONGEST_NOTE = 600
_OFFLOADED = "less what cpuOffload keeps in CPU memory"
_LORA_ON_EMBEDDING = {
    "exaone", "granite", "internlm3", "llama", "minicpm", "mistral", "mixtral", "phi3", "qwen3", "qwen3_moe",
}  # fmt: skip
"""Architectures whose class in vllm/model_executor/models lists `embedding_modules`."""


def weights(facts: ModelFacts, settings: Settings, stage: int, known: KnownWeights | None) -> Figure:
    """Bytes of weights on one rank of a stage, LoRA slots included.

    The total is from the first available of: the spec (weightsBytes), the headers of safetensors files, the
    architecture, the sizes of files. The architecture determines which tensor is on which rank; where it is not known,
    ranks share evenly. What PyTorch's allocator rounds up counts as weights, as it does in vLLM's log.
    """
    if facts.unfit:
        return unknown(facts.unfit_note)
    problem = _why_not_counted(facts, settings)
    if problem:
        held = _shared_evenly(_uncounted(facts, settings, known, problem), problem, facts, settings, stage)
    else:
        held = _from_architecture(facts, settings, stage, known)
    return _with_draft(held, settings) if settings.draft and stage == settings.stages - 1 else held


def _with_draft(held: Figure, settings: Settings) -> Figure:
    """The same with the draft of speculative decoding, which has its own files."""
    draft = settings.draft
    if held.value is None or draft is None or draft.uncounted:
        return held
    tensors = list(draft_tensors(draft, settings))
    size = sum(tensor.size for tensor in tensors)
    if not settings.cpu:
        size += allocator_rounding(tensors) + (rotary_bytes(draft.facts, settings) if draft.facts else 0)
    return computed(int(held.value) + size, f"{held.note} {size / MIB:,.0f} MiB of it the draft ({draft.method}).")


def _uncounted(facts: ModelFacts, settings: Settings, known: KnownWeights | None, problem: str) -> Figure:
    """Bytes of all weights where the architecture does not say."""
    if isinstance(known, StatedWeights):
        return computed(known.size, _stated(known))
    if facts.architecture_known or _bits_unknown(facts, settings):
        return unknown(f"{problem} {ways_out.STATED_SIZE}")
    if known is None:
        return unknown(f"{problem} {ways_out.TENSORS}")
    if _quantised_on_load(facts, settings):
        return unknown(f"{problem} So the size after spec.model.quantization is not known. {ways_out.STATED_SIZE}")
    if isinstance(known, StoredFiles):
        total = loaded_bytes(known, facts, settings)
        return total if total.known else unknown(f"{problem} {total.note}")
    return computed(_loaded_bytes(known, settings), "Headers of the safetensors files")


def _why_not_counted(facts: ModelFacts, settings: Settings) -> str:
    """Why tensors cannot be counted from the architecture; empty where they can."""
    if settings.quantization is not None and _bits_unknown(facts, settings):
        return _quantization_note(settings.quantization)
    if facts.architecture_known:
        if too_many_kinds(facts, settings.quantization):
            return "quantization_config leaves out different modules in each layer."
        return ""
    return f"The tensors of {_what(facts)} are not known here."


def _bits_unknown(facts: ModelFacts, settings: Settings) -> bool:
    quantization = settings.quantization
    return quantization is not None and (quantization.bits == 0 or (quantization.experts_only and facts.moe is None))


def _what(facts: ModelFacts) -> str:
    if facts.has_more:
        return f"a model with {', '.join(facts.has_more)}"
    return f"model type {facts.model_type!r}" if facts.model_type else "a config.json without model_type"


def _stated(known: StatedWeights) -> str:
    return f"spec.model.architecture.weightsBytes: {known.size / GIB:.2f} GiB, stated in the spec"


def _shared_evenly(total: Figure, why: str, facts: ModelFacts, settings: Settings, stage: int) -> Figure:
    """The part of one rank where it is not known which tensor is where; LoRA slots cannot be counted then."""
    if total.value is None:
        return total
    share = settings.layer_partition[stage] / facts.layers / settings.tensor
    parts = [total.note]
    if settings.tensor * settings.stages > 1:
        parts.append("shared evenly by ranks and layers")
    if settings.lora_slots:
        parts.append("without LoRA slots")
    if settings.offload:
        parts.append(_OFFLOADED)
    size = max(0, round(total.value * share) - settings.offload)
    return computed(size, f"{', '.join(parts)}. {why}")


def _quantization_note(quantization: Quantization) -> str:
    if quantization.unfit == NO_CONFIG:
        return NO_CONFIG
    if quantization.unfit:
        return cut(f"quantization_config cannot be read: {quantization.unfit}", _LONGEST_NOTE)
    return f"How many bytes quantisation {quantization.method!r} takes is not known here."


def _from_architecture(facts: ModelFacts, settings: Settings, stage: int, known: KnownWeights | None) -> Figure:
    tensors = list(stage_tensors(facts, settings, stage))
    total, note = _corrected(facts, settings, known)
    size: float = sum(tensor.size for tensor in tensors)
    if total is not None:
        whole = replace(
            settings, tensor=1, layer_partition=(facts.layers,), data=1, expert_ranks=1, expert_padding=NO_PADDING,
            redundant_experts=0, encodes=True, mtp_layers=0, draft=None,
        )  # fmt: skip
        size *= total / _bytes(facts, whole)
    rounding = 0 if settings.cpu else allocator_rounding(tensors)
    slots = lora_bytes(facts, tensors, settings)
    stated = isinstance(known, StatedWeights)  # vLLM's log has the table of positions in it
    rotary = 0 if settings.cpu or stated else rotary_bytes(facts, settings)
    ranks = settings.tensor * settings.stages
    parts = [note + (f", one of {ranks} ranks" if ranks > 1 else "")]
    if rounding:
        parts.append(f"{rounding / MIB:.0f} MiB of it rounding by PyTorch's allocator")
    if tower := sum(tensor.size for tensor in tensors if tensor.kind == "vision"):
        parts.append(f"{tower / MIB:.0f} MiB of it {_towers(facts)}")
    if rotary >= 64 * MIB:
        parts.append(f"{rotary / MIB:.0f} MiB of it positions (rotary)")
    if settings.redundant_experts:
        parts.append(f"with {settings.redundant_experts} redundant experts in each layer (EPLB)")
    if slots:
        parts.append(f"{slots / MIB:.0f} MiB of it LoRA slots")
    if settings.offload:
        parts.append(_OFFLOADED)
    compared = f" {known.note}." if isinstance(known, StoredFiles) else ""
    note = f"{', '.join(parts)}.{compared}{_version_note(facts)}"
    return computed(max(0, round(size) + rounding + rotary + slots - settings.offload), note)


def _towers(facts: ModelFacts) -> str:
    """What the towers of a model are, and whether they are estimated."""
    kinds = " and ".join(name.removesuffix("_config") for name in facts.has_more)
    article = "an" if kinds.startswith("a") else "a"
    named = f"{article} {kinds} tower" if len(facts.has_more) == 1 else f"{kinds} towers"
    if facts.tower is None or not facts.tower.estimated:
        return named
    members = ", ".join(facts.has_more)
    return f"{named}, estimated from {members} (the lower end has {TOO_SMALL:.0%} more)"


def _corrected(facts: ModelFacts, settings: Settings, known: KnownWeights | None) -> tuple[int | None, str]:
    """Bytes of all weights from a source that precedes the architecture, and a note on the source."""
    if isinstance(known, StatedWeights):
        return known.size, f"{_stated(known)}, shared as the architecture ({facts.model_type}) says"
    if isinstance(known, Checkpoint) and not _quantised_on_load(facts, settings):
        return _loaded_bytes(known, settings), "From the headers of the safetensors files"
    return None, f"From the architecture ({facts.model_type})"


def _version_note(facts: ModelFacts) -> str:
    return f" No vLLM after {facts.last_version} runs this model type." if facts.last_version else ""


@lru_cache(maxsize=8)  # every stage calls it with the same arguments
def _bytes(facts: ModelFacts, whole: Settings) -> int:
    return sum(tensor.size for tensor in stage_tensors(facts, whole, 0))


def _quantised_on_load(facts: ModelFacts, settings: Settings) -> bool:
    return settings.quantization is not None and facts.quantization is None


def _loaded_bytes(checkpoint: Checkpoint, settings: Settings) -> int:
    return checkpoint.loaded_bytes(dtype_bytes=settings.dtype_bytes, quantised=settings.quantization is not None)


def allocator_rounding(tensors: Iterable[Tensor]) -> int:
    """Bytes that PyTorch's allocator takes beyond the tensors' own.

    Source: `get_allocation_size` in c10/cuda/CUDACachingAllocator.cpp: tensors of up to 1 MiB share segments of 2 MiB,
    those below 10 MiB segments of 20 MiB, larger ones get a segment of their own in steps of 2 MiB. That is why vLLM
    logs 14.29 GiB for Qwen2.5-7B, whose parameters are 14.18 GiB.
    """
    small = medium = rounding = 0
    for size, count in ((part, tensor.count) for tensor in tensors for part in tensor.parts):
        if size <= MIB:
            small += count * size
        elif size < 10 * MIB:
            medium += count * size
        else:
            rounding += count * (-size % (2 * MIB))
    return rounding + -small % (2 * MIB) + -medium % (20 * MIB)


def lora_bytes(facts: ModelFacts, tensors: Iterable[Tensor], settings: Settings) -> int:
    """Bytes set aside for adapters on one rank.

    Source: `create_lora_weights` in vllm/lora/layers/{base_linear,column_parallel_linear}.py: for each linear layer and
    slot, A of rank x inputs for each merged part and B of outputs x rank; and where the model class lists
    `embedding_modules`, the same for embedding and head, with the whole vocabulary on every rank. Adapters on experts
    are not counted.
    """
    if not settings.lora_slots:
        return 0
    elements = 0
    for tensor in tensors:
        if tensor.linear is not None:
            outputs, inputs = tensor.linear
            elements += tensor.count * settings.lora_rank * (tensor.merged * inputs + outputs)
        elif tensor.kind in {"embedding", "head"} and facts.model_type in _LORA_ON_EMBEDDING:
            elements += settings.lora_rank * (facts.vocab + facts.hidden)
    return elements * settings.lora_slots * settings.dtype_bytes
