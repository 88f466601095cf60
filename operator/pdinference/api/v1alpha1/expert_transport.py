"""How tokens get to the experts of other data-parallel ranks: vLLM's all2all backend of each role.

`auto` follows the table of backends in vLLM's guide (https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment/).
This project measured none of its choices (docs/large-models.md).

Tests: tests/checks/test_expert_transport.py
"""

import re
from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.resource import Spec

OPTION: Final = "all2all-backend"
"""The option of vLLM."""
ANYWHERE: Final = "allgather_reducescatter"
"""vLLM's default, which needs neither packages nor rights."""
HIGH_THROUGHPUT: Final = "deepep_high_throughput"
LOW_LATENCY: Final = "deepep_low_latency"
SMALL_STEPS: Final = (LOW_LATENCY, "nixl_ep")
"""Backends whose memory grows with the tokens of a step (`use_batched_dp_moe` in vllm/config/parallel.py)."""
SMALL_STEP: Final = 256
"""Tokens of a step with these (DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP in vllm/config/scheduler.py)."""
_DEEPEP: Final = {Role.PARAMETER: HIGH_THROUGHPUT, Role.DECODE: LOW_LATENCY}
"""Kernels for prefill record no CUDA graphs; those for decode do."""
_MORI: Final = {Role.PARAMETER: "mori_high_throughput", Role.DECODE: "mori_low_latency"}
_HOPPER_OR_LATER: Final = re.compile(r"nvidia-(h20|h100|h200|h800|b[23]00)\b", re.IGNORECASE)
"""Products of which a node has eight. GH200 and GB200 have fewer."""
RANKS_OF_A_NODE: Final = 8
"""DeepEP's ranks 0 to 7 have to be on one node, and so on (vllm/v1/engine/utils.py)."""


def expert_transport(spec: Spec, role: Role) -> str | None:
    """The backend of a role; None for vLLM's default, and where no tokens go to other ranks."""
    own = spec.of(role)
    chosen = own.expert_transport or spec.engine.expert_transport
    if chosen is None or not own.parallelism.exchanges_tokens:
        return None
    return chosen if chosen != "auto" else _by_device(spec, role)


def _by_device(spec: Spec, role: Role) -> str | None:
    """The backend for several nodes whose devices are known, and for a role that does one thing alone."""
    own, products = spec.of(role), spec.products(role)
    alone = spec.transfers_kv and not spec.router.is_adaptive
    if own.parallelism.nodes == 1 or not alone or spec.model.lora is not None:
        return None
    if own.accelerator.maker == "AMD":
        return _MORI[role]
    whole = own.parallelism.devices_per_pod == RANKS_OF_A_NODE
    return _DEEPEP[role] if whole and products and all(map(_HOPPER_OR_LATER.match, products)) else None
