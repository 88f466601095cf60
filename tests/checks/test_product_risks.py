"""Warnings about names of GPU products."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.checks.examine import examine
from pdinference.manifests import RenderSettings

Make = Callable[..., dict[str, Any]]

H200 = {"accelerator": {"products": ["NVIDIA-H200"]}}


def warnings(made: dict[str, Any]) -> dict[str, str]:
    found = examine(made, RenderSettings())
    assert not found.problems
    return {warning.field: warning.message for warning in found.warnings}


@pytest.mark.parametrize(
    ("product", "advice"),
    [
        ("H100", "Did you mean NVIDIA-H100-80GB-HBM3? `kubectl get nodes -L nvidia.com/gpu.product` shows the values."),
        ("nvidia-l40s", "is exactly nvidia-l40s. Did you mean NVIDIA-L40S?"),
        ("NVIDIA-T4", "Its memory is not known here: if the name is right, state accelerator.memory."),
    ],
)
def test_a_product_that_may_be_misspelt_is_worth_a_warning(document: Make, product: str, advice: str) -> None:
    named = {"accelerator": {"products": [product]}}
    found = warnings(document(parameter=named))
    assert advice in found["spec.parameter.accelerator.products"]
    assert "spec.decode.accelerator.products" not in found, "D takes those of P"
    assert advice in warnings(document(parameter=H200, decode=named))["spec.decode.accelerator.products"]
    stated = {"accelerator": {"products": [product], "memory": "80Gi"}}
    assert "spec.parameter.accelerator.products" not in warnings(document(parameter=stated))


def test_products_of_the_table_are_not(document: Make) -> None:
    for product in (
        "NVIDIA-H200",
        "NVIDIA-H100-80GB-HBM3",
        "Tesla-T4",
        "NVIDIA-A100-PCIE-40GB",
        "NVIDIA-L40S-SHARED",
        "MI300X",
    ):
        found = warnings(document(parameter={"accelerator": {"products": [product]}}))
        assert "spec.parameter.accelerator.products" not in found
