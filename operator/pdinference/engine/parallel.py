"""Options of vLLM for the parallelism of an instance.

Tests: tests/engine/test_vllm.py, tests/engine/test_vllm_parser.py
"""

from typing import Any

from pdinference.api.v1alpha1.roles.role import Parallelism
from pdinference.engine.command import EnvironmentVariable, variable


def parallel_options(parallelism: Parallelism) -> dict[str, Any]:
    """vLLM's options for parallelism. Sizes of 1 are also written, for clarity."""
    options: dict[str, Any] = {"tensor-parallel-size": parallelism.tensor}
    if parallelism.pipeline > 1:
        options["pipeline-parallel-size"] = parallelism.pipeline
    if parallelism.data > 1:
        options["data-parallel-size"] = parallelism.data
    if parallelism.expert:
        options["enable-expert-parallel"] = True
    return options


def parallel_environment(parallelism: Parallelism) -> list[EnvironmentVariable]:
    """The variable with the partition of layers (vllm/distributed/utils.py)."""
    if not parallelism.layer_partition:
        return []
    return [variable("VLLM_PP_LAYER_PARTITION", ",".join(map(str, parallelism.layer_partition)))]
