"""What one device of each role holds: weights, activations, overhead, KV cache; before a GPU is spent.

Pure: the command line reads `config.json` and the headers of safetensors files, and passes data.
"""

from pdinference.planning.memory.advice import WhatIf, least_memory, one_request, what_if
from pdinference.planning.memory.checkpoint import Checkpoint, Headers, TensorHeader, checkpoint_of
from pdinference.planning.memory.figures import Figure, Source
from pdinference.planning.memory.known_facts import compact_config, known_facts
from pdinference.planning.memory.model_facts import ModelFacts, UnusableConfigError, model_facts
from pdinference.planning.memory.plan import Inputs, RolePlan, UnusableSpecError, plan_role, stated_memory

__all__ = [
    "Checkpoint",
    "Figure",
    "Headers",
    "Inputs",
    "ModelFacts",
    "RolePlan",
    "Source",
    "TensorHeader",
    "UnusableConfigError",
    "UnusableSpecError",
    "WhatIf",
    "checkpoint_of",
    "compact_config",
    "known_facts",
    "least_memory",
    "model_facts",
    "one_request",
    "plan_role",
    "stated_memory",
    "what_if",
]
