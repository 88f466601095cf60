"""The memory of one device of each role, computed before deployment: weights, activations, overhead, KV cache.

Pure: the command line reads `config.json` and the headers of safetensors files, and passes data.
"""

from pdinference.memory import ways_out
from pdinference.memory.advice import WhatIf, fits, least_memory, one_request, what_if
from pdinference.memory.comparison.unsplit import compare
from pdinference.memory.figures import Figure, Source
from pdinference.memory.known_facts import compact_config, facts_in, known_facts
from pdinference.memory.model.config import UnusableConfigError
from pdinference.memory.model.model_facts import model_facts
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.plan import Inputs, RolePlan, UnusableSpecError, plan_role, stated_memory
from pdinference.memory.settings import draft_model
from pdinference.memory.split import split_problems, tensor_sizes
from pdinference.memory.verdict import NO_VERDICT, MemoryVerdict
from pdinference.memory.weights.checkpoint import (
    Checkpoint,
    Headers,
    KnownWeights,
    StatedWeights,
    StoredFiles,
    TensorHeader,
    checkpoint_of,
    known_weights,
)

__all__ = [
    "NO_VERDICT",
    "Checkpoint",
    "Figure",
    "Headers",
    "Inputs",
    "KnownWeights",
    "MemoryVerdict",
    "ModelFacts",
    "RolePlan",
    "Source",
    "StatedWeights",
    "StoredFiles",
    "TensorHeader",
    "UnusableConfigError",
    "UnusableSpecError",
    "WhatIf",
    "checkpoint_of",
    "compact_config",
    "compare",
    "draft_model",
    "facts_in",
    "fits",
    "known_facts",
    "known_weights",
    "least_memory",
    "model_facts",
    "one_request",
    "plan_role",
    "split_problems",
    "stated_memory",
    "tensor_sizes",
    "ways_out",
    "what_if",
]
