"""`spec.engine.expertBalance`: copies of the experts that get the most tokens (EPLB).

Tests: tests/checks/test_experts.py, tests/engine/test_vllm_parser.py
"""

from typing import Annotated

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel


class ExpertBalance(ApiModel):
    """Moves experts between devices by their load (vLLM's EPLB)."""

    redundant: Annotated[int, Field(ge=0, le=1024)] = 0
    """Copies of experts, in each layer, over all devices of an instance."""
    step_interval: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Steps of vLLM between two moves. Default: 3000."""
