"""The size of loaded weights when only the size of the files is known."""

from pdinference.memory import ways_out
from pdinference.memory.figures import Figure, computed, unknown
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import DTYPE_BYTES, Settings
from pdinference.memory.weights.checkpoint import StoredFiles

_HALF = 2


def loaded_bytes(files: StoredFiles, facts: ModelFacts, settings: Settings) -> Figure:
    """Bytes of all weights once they are loaded, on one device.

    vLLM casts plain weights to the model's dtype while it copies them (`default_weight_loader` in
    vllm/model_executor/model_loader/weight_utils.py). So the size is scaled from the type that config.json names
    (`torch_dtype`) to the one that is served. Of quantised weights only what is not quantised is cast, and a size does
    not say how much that is. So their size counts only where nothing has to be cast.
    """
    sizes = files.note
    stored = DTYPE_BYTES.get((facts.dtype or "").removeprefix("torch."))
    if stored is None:
        named = f"has an unknown torch_dtype, {facts.dtype!r}" if facts.dtype else "has no torch_dtype"
        return unknown(f"{sizes}. config.json {named}, so the size in memory is not known. {ways_out.SIZE_IN_MEMORY}")
    if facts.quantization is not None:
        if stored == settings.dtype_bytes == _HALF:
            return computed(files.file_bytes, f"{sizes}, quantised")
        return unknown(
            f"{sizes}, quantised. vLLM casts what is not quantised from {facts.dtype}, so the size in memory is not "
            f"known. {ways_out.STATED_SIZE}"
        )
    sizes += f" in {facts.dtype} (torch_dtype of config.json)"
    if stored != settings.dtype_bytes:
        sizes += f", loaded with {settings.dtype_bytes} bytes an element in place of {stored}"
    return computed(files.file_bytes * settings.dtype_bytes // stored, sizes)
