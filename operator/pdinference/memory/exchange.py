"""Buffers through which tokens get to the experts of other ranks, beside PyTorch's memory.

Tests: tests/memory/test_exchange.py
"""

from typing import Final

from pdinference.api.v1alpha1.expert_transport import ANYWHERE, HIGH_THROUGHPUT, LOW_LATENCY
from pdinference.memory.figures import MIB, ceil_div
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings

_WITHOUT_BUFFERS: Final = (None, ANYWHERE)
_HIDDEN_SIZES: Final = (2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192)
"""Of DeepEP's kernels; vLLM rounds others up (`SUPPORTED_HIDDEN_SIZES` in vLLM's fused_moe/prepare_finalize)."""
LARGEST_HIDDEN: Final = _HIDDEN_SIZES[-1]
_ALIGNMENT: Final = 128
_CONTROL: Final = 16
"""Bytes in front of each token that is sent."""
_SIDES: Final = 2
"""Steps of even and odd number have buffers of their own."""


def exchange_bytes(facts: ModelFacts, settings: Settings) -> int | None:
    """Bytes of one device; None if the backend's buffers are not known.

    Source: `_make_all2all_kwargs` of the DeepEP managers in vllm/distributed/device_communicators/all2all.py.
    """
    backend, each = settings.expert_transport, settings.exchange_mib * MIB
    if backend in _WITHOUT_BUFFERS or facts.moe is None:
        return 0
    if backend == HIGH_THROUGHPUT:
        return each * (2 if settings.nodes > 1 else 1)  # over NVLink, and between nodes
    return each + _low_latency(facts, settings) if backend == LOW_LATENCY else None


def _low_latency(facts: ModelFacts, settings: Settings) -> int:
    """Bytes that may be sent and received in one step, if all tokens of all ranks go to the same experts.

    Source: `LowLatencyLayout` in csrc/config.hpp of DeepEP.
    """
    experts = (facts.moe.experts if facts.moe else 0) + settings.redundant_experts
    hidden = next((size for size in _HIDDEN_SIZES if size >= facts.hidden), facts.hidden)
    scales, tokens = hidden // 128, settings.max_num_batched_tokens
    dispatched = _CONTROL + max(2 * hidden, hidden + 4 * scales)
    combined = 4 * scales + 2 * hidden
    sent = max(tokens * dispatched, experts * tokens * combined)
    received = experts * tokens * max(dispatched, combined)
    signals = ceil_div(experts * 8 + ceil_div(experts, settings.expert_ranks) * 4, _ALIGNMENT) * _ALIGNMENT
    return _SIDES * (sent + received + signals)
