"""How tokens get to the experts of other data-parallel ranks: vLLM's all2all backend of each role.

`auto` follows the table of backends in vLLM's guide (https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment/).
This project measured none of its choices (docs/large-models.md).

Tests: tests/checks/test_expert_transport.py
"""

import re
from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.resource import Spec
from pdinference.api.v1alpha1.roles.accelerator import Accelerator

OPTION: Final = "all2all-backend"
"""The option of vLLM."""
DEEPEP: Final = {Role.PARAMETER: "deepep_high_throughput", Role.DECODE: "deepep_low_latency"}
"""Kernels for prefill record no CUDA graphs; those for decode do."""
_MORI: Final = {Role.PARAMETER: "mori_high_throughput", Role.DECODE: "mori_low_latency"}
_NVLINK: Final = "flashinfer_nvlink_one_sided"
_RACKS: Final = re.compile(r"nvidia-gb[23]00", re.IGNORECASE)
"""Products whose NVLink reaches the GPUs of other nodes."""
_HOPPER_OR_LATER: Final = re.compile(r"nvidia-(h20|h100|h200|h800|gh200|g?b[23]00)\b", re.IGNORECASE)


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
    if own.parallelism.nodes == 1 or not spec.transfers_kv or spec.router.is_adaptive:
        return None
    if is_amd(own.accelerator):
        return _MORI[role]
    if products and own.placement.domain is not None and all(map(_RACKS.match, products)):
        return _NVLINK
    return DEEPEP[role] if products and all(map(_HOPPER_OR_LATER.match, products)) else None


def is_amd(accelerator: Accelerator) -> bool:
    """Whether the devices are AMD's, by the names that request them."""
    claimed = accelerator.devices
    return "amd.com" in (claimed.device_class_name if claimed else accelerator.resource_name)
