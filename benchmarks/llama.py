"""Llama-3.1-8B in bf16, which the simulations of the benchmarks serve, by default on an H200."""

from typing import Any, Final

from pdinference.memory.model.model_facts import model_facts
from pdinference.memory.settings import Settings
from pdinference.performance.calibration import H200, Calibration, calibration_of
from pdinference.performance.devices import DEVICES, device_key
from pdinference.performance.step import StepModel
from pdinference.performance.work import work_of
from pdinference_advise.simulation.arrangement import EngineKind
from pdinference_advise.simulation.engine import EngineLimits

CONFIG: Final[dict[str, Any]] = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
KV_TOKENS: Final = 899_104
"""Measured: what the KV cache of one H200 holds (vLLM 0.26.0)."""


def engine_kind(settings: Settings, kv_tokens: int = KV_TOKENS, product: str = H200.product) -> EngineKind:
    """Engines with these settings."""
    return EngineKind(step_model(settings, calibration_of(product)), EngineLimits.of(settings, kv_tokens))


def step_model(settings: Settings, calibration: Calibration) -> StepModel:
    """Steps with these settings on the product of a calibration."""
    device = DEVICES[device_key(calibration.product)]
    return StepModel(work_of(model_facts(CONFIG), settings), device, calibration)
