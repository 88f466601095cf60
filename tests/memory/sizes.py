"""Sums over the tensors that a plan counts."""

from collections import Counter
from dataclasses import replace

from pdinference.memory.figures import ceil_div
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings
from pdinference.memory.weights.tensors import stage_tensors
from tests.memory.configs import LLAMA_1B
from tests.memory.plans import plan


def breakdown(facts: ModelFacts, settings: Settings, stage: int) -> Counter[str]:
    """Bytes of each kind of tensor on one rank of a stage."""
    sums = Counter[str]()
    for tensor in stage_tensors(facts, settings, stage):
        sums[tensor.kind] += tensor.size
    return sums


def parameters(facts: ModelFacts) -> int:
    """Number of parameters of an unquantised model, embedding counted once when tied."""
    padding = (ceil_div(facts.vocab, 64) * 64 - facts.vocab) * facts.hidden * (1 if facts.tied_embeddings else 2)
    return elements(facts, replace(plan(LLAMA_1B).settings, layer_partition=(facts.layers,)), 0) - padding


def elements(facts: ModelFacts, settings: Settings, stage: int) -> int:
    """Number of elements on one rank of a stage, unquantised: of four bytes each, as some always have."""
    return breakdown(facts, replace(settings, dtype_bytes=4, quantization=None), stage).total() // 4
