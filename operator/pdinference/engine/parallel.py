"""Options of vLLM for the parallelism of an instance.

Tests: tests/engine/test_vllm.py, tests/engine/test_vllm_parser.py
"""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.expert_transport import OPTION, expert_transport
from pdinference.api.v1alpha1.experts import ExpertBalance
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


def expert_options(spec: Spec, role: Role) -> dict[str, Any]:
    """vLLM's options for experts on several devices."""
    backend = expert_transport(spec, role)
    transport = {} if backend is None else {OPTION: backend}
    return {**transport, **_balance_options(spec.of(role).parallelism, spec.engine.expert_balance)}


def _balance_options(parallelism: Parallelism, balance: ExpertBalance | None) -> dict[str, Any]:
    """vLLM's options that move experts between devices by their load (`EPLBConfig` in vllm/config/parallel.py)."""
    if balance is None or not parallelism.spreads_experts:
        return {}
    config = {"num_redundant_experts": balance.redundant}
    if balance.step_interval is not None:
        config["step_interval"] = balance.step_interval
    return {"enable-eplb": True, "eplb-config": config}


def parallel_environment(parallelism: Parallelism) -> list[EnvironmentVariable]:
    """The variable with the partition of layers (vllm/distributed/utils.py)."""
    if not parallelism.layer_partition:
        return []
    return [variable("VLLM_PP_LAYER_PARTITION", ",".join(map(str, parallelism.layer_partition)))]
