"""Nodes of P with different products: the plan uses the smallest resources of all nodes."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference, Spec
from pdinference.manifests.pods.placement import engine_scheduling
from pdinference.memory import Inputs, model_facts, plan_role
from pdinference.memory.gpus import smallest_gpu_memory
from tests.memory import configs

H100, A10, L4 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A10", "NVIDIA-L4"


def p_on(accelerator: list[str], *pools: list[str]) -> Spec:
    """P with a pipeline stage on each of some nodes."""
    parameter: dict[str, Any] = {
        "parallelism": {"pipeline": len(pools), "nodes": len(pools)},
        "accelerator": {"products": accelerator},
        "nodePools": [{"products": products} for products in pools],
        "maxNumBatchedTokens": 8192,
        "maxNumSeqs": 256,
    }
    return Spec.model_validate({"model": {"source": {"path": "/models/any"}}, "parameter": parameter})


def rendered_products(spec: Spec, rank: int) -> list[str]:
    """The requirements in the node affinity of the pods on one node."""
    resource = PDInference.model_validate({"metadata": {"name": "llama"}, "spec": spec.model_dump(by_alias=True)})
    fields = engine_scheduling(resource, Role.PARAMETER, resource.spec.of(Role.PARAMETER, rank), rank)
    required = fields["affinity"].get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms", [])
    return [value for term in terms for each in term["matchExpressions"] for value in each["values"]]


@pytest.mark.parametrize(
    ("accelerator", "pools", "smallest"),
    [
        ([A10], ([H100], []), A10),
        ([A10], ([], [H100]), A10),
        ([A10], ([H100], [L4]), L4),
        ([H100], ([A10], []), A10),
        ([], ([H100], [A10]), A10),
        ([], ([H100], []), None),
        ([], ([], [H100]), None),
    ],
)
def test_p_is_planned_for_the_smallest_gpu_of_its_nodes(
    accelerator: list[str], pools: tuple[list[str], ...], smallest: str | None
) -> None:
    spec = p_on(accelerator, *pools)
    named = [rendered_products(spec, rank) for rank in range(len(pools))]
    assert named == [pool or accelerator for pool in pools]
    memory = plan_role(Inputs(spec, model_facts(configs.LLAMA_8B)), Role.PARAMETER).memory
    assert memory == smallest_gpu_memory([] if smallest is None else [smallest])
