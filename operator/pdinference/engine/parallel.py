"""How an instance is split over devices, as options of vLLM."""

from typing import Any

from pdinference.api.v1alpha1.roles.role import Parallelism
from pdinference.engine.command import EnvironmentVariable, variable


def parallel_options(parallelism: Parallelism) -> dict[str, Any]:
    """vLLM's options; the sizes are always written, so that one reads what one gets."""
    options: dict[str, Any] = {"tensor-parallel-size": parallelism.tensor}
    if parallelism.pipeline > 1:
        options["pipeline-parallel-size"] = parallelism.pipeline
    if parallelism.data > 1:
        options["data-parallel-size"] = parallelism.data
    if parallelism.expert:
        options["enable-expert-parallel"] = True
    return options


def parallel_environment(parallelism: Parallelism) -> list[EnvironmentVariable]:
    """The partition of layers, which vLLM reads from the environment (vllm/distributed/utils.py)."""
    if not parallelism.layer_partition:
        return []
    return [variable("VLLM_PP_LAYER_PARTITION", ",".join(map(str, parallelism.layer_partition)))]
