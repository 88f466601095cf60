"""Experts on several devices: copies of those that get the most tokens (EPLB), and how tokens get to them.

Tests: tests/checks/test_experts.py, tests/checks/test_expert_transport.py, tests/engine/test_vllm_parser.py
"""

from typing import Annotated, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel

ExpertTransport = Literal[
    "auto",
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "deepep_v2",
    "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided",
    "mori_high_throughput",
    "mori_low_latency",
    "nixl_ep",
]
"""Values of vLLM's option all2all-backend (`All2AllBackend` in vllm/config/parallel.py), and `auto`."""


class ExpertBalance(ApiModel):
    """Moves experts between devices by their load (vLLM's EPLB)."""

    redundant: Annotated[int, Field(ge=0, le=1024)] = 0
    """Copies of experts, in each layer, over all devices of an instance."""
    step_interval: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Steps of vLLM between two moves. Default: 3000."""
