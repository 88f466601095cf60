"""Bytes of weights on a device: from the headers of a checkpoint, or from the architecture."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from pdinference.api.words import cut
from pdinference.planning.memory.checkpoint import Checkpoint
from pdinference.planning.memory.figures import MIB, Figure, computed, unknown
from pdinference.planning.memory.quantization import Quantization
from pdinference.planning.memory.settings import Settings
from pdinference.planning.memory.shape import ModelFacts
from pdinference.planning.memory.tensors import Tensor, stage_tensors, too_many_kinds

_LONGEST_NOTE = 600
_LOG = "start vLLM once and read its log."
_LORA_ON_EMBEDDING = {
    "exaone", "granite", "internlm3", "llama", "minicpm", "mistral", "mixtral", "phi3", "qwen3", "qwen3_moe",
}  # fmt: skip
"""Architectures whose class in vllm/model_executor/models lists `embedding_modules`."""


def weights(facts: ModelFacts, settings: Settings, stage: int, checkpoint: Checkpoint | None) -> Figure:
    """Bytes of weights on one rank of a stage, LoRA slots included.

    The architecture says which tensor is on which rank; the checkpoint's headers say how many bytes there are in all,
    and correct the architecture's sum. What PyTorch's allocator rounds up counts as weights, as it does in vLLM's log.
    """
    if facts.unfit:
        return unknown(facts.unfit_note)
    if settings.quantization is not None and settings.quantization.bits == 0:
        return unknown(_quantization_note(settings.quantization))
    if facts.architecture_known and too_many_kinds(facts, settings.quantization):
        return unknown(
            "quantization_config leaves out different modules in each layer; start vLLM once and read its log."
        )
    if facts.architecture_known:
        return _from_architecture(facts, settings, stage, checkpoint)
    if checkpoint is None:
        what = f"a model with {', '.join(facts.has_more)}" if facts.has_more else f"model type {facts.model_type!r}"
        return unknown(
            f"The tensors of {what} are not known here; give a folder with its safetensors files (--model-dir)."
        )
    total = _loaded_bytes(checkpoint, settings)
    share = settings.layer_partition[stage] / facts.layers / settings.tensor
    return computed(
        total * share, f"Headers of the safetensors files, shared evenly: model type {facts.model_type!r} is not known."
    )


def _quantization_note(quantization: Quantization) -> str:
    if quantization.unfit:
        return cut(f"quantization_config cannot be read: {quantization.unfit}", _LONGEST_NOTE)
    return f"How many bytes quantisation {quantization.method!r} takes is not known here; {_LOG}"


def _from_architecture(facts: ModelFacts, settings: Settings, stage: int, checkpoint: Checkpoint | None) -> Figure:
    tensors = list(stage_tensors(facts, settings, stage))
    size: float = sum(tensor.size for tensor in tensors)
    note = f"From the architecture ({facts.model_type})"
    if checkpoint is not None and not _quantised_on_load(facts, settings):
        whole = replace(settings, tensor=1, layer_partition=(facts.layers,), data=1, expert_ranks=1)
        size *= _loaded_bytes(checkpoint, settings) / _bytes(facts, whole)
        note = "From the headers of the safetensors files"
    rounding = 0 if settings.cpu else allocator_rounding(tensors)
    slots = lora_bytes(facts, tensors, settings)
    ranks = settings.tensor * settings.stages
    parts = [note + (f", one of {ranks} ranks" if ranks > 1 else "")]
    if rounding:
        parts.append(f"{rounding / MIB:.0f} MiB of it rounding by PyTorch's allocator")
    if slots:
        parts.append(f"{slots / MIB:.0f} MiB of it LoRA slots")
    if settings.offload:
        parts.append("less what cpuOffload keeps in CPU memory")
    note = f"{', '.join(parts)}.{_version_note(facts)}"
    return computed(max(0, round(size) + rounding + slots - settings.offload), note)


def _version_note(facts: ModelFacts) -> str:
    return f" No vLLM after {facts.last_version} runs this model type." if facts.last_version else ""


@lru_cache(maxsize=8)  # every stage asks for the same
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
