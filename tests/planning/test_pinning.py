"""The condition Pinned reports where P and D run, with a remedy if P may run on any node."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.pinning import pinned

Make = Callable[..., PDInference]
H100 = {"accelerator": {"products": ["H100"]}}
DEVICES = {"accelerator": {"devices": {"deviceClassName": "gpu.example.com"}}}
ON_A_POOL = {"placement": {"nodeSelector": {"pool": "l40s"}}}


def found(resource: Make, **spec: Any) -> ConditionResult:
    result = pinned(resource(**spec).spec)
    assert result is not None
    return result


def test_a_p_without_products_says_how_to_pin_it(resource: Make) -> None:
    assert found(resource) == (
        "False",
        "NotPinned",
        (
            "spec.parameter.accelerator.products: P is not pinned to a product: its pods may run on any node with "
            "nvidia.com/gpu. List products here. `kubectl get nodes -L nvidia.com/gpu.product` shows the products "
            "in the cluster."
        ),
    )


def test_the_command_names_the_label_of_the_vendor(resource: Make) -> None:
    amd = {"resourceName": "amd.com/gpu", "productLabel": "amd.com/gpu.product-name"}
    message = found(resource, parameter={"accelerator": amd}).message
    assert "any node with amd.com/gpu." in message
    assert "`kubectl get nodes -L amd.com/gpu.product-name`" in message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"parameter": H100}, "P runs on H100. D runs on H100, the products of P."),
        (
            {"parameter": H100, "decode": {"accelerator": {"products": ["L4", "L40S"]}}},
            "P runs on H100. D runs on L4, L40S.",
        ),
        (
            {"parameter": H100, "decode": ON_A_POOL},
            (
                "P runs on H100. D runs on nodes that its own placement or podTemplate choose; to pin it to a product, "
                "list spec.decode.accelerator.products."
            ),
        ),
        ({"parameter": H100, "decode": {"accelerator": {"type": "CPU"}}}, "P runs on H100. D runs on CPU."),
        ({"parameter": DEVICES, "decode": DEVICES}, "P claims exact devices. D claims exact devices."),
        (
            {"parameter": DEVICES},
            (
                "P claims exact devices. D runs on any node with nvidia.com/gpu; to pin it to a product, list "
                "spec.decode.accelerator.products."
            ),
        ),
        (
            {"parameter": {"placement": {"nodeSelector": {"nvidia.com/gpu.product": "H100"}}}, "decode": DEVICES},
            "P runs on nodes that placement, nodePools or podTemplate choose. D claims exact devices.",
        ),
    ],
    ids=str,
)
def test_a_pinned_p_says_where_both_run(resource: Make, spec: dict[str, Any], message: str) -> None:
    assert found(resource, **spec) == ("True", "Pinned", message)


def test_every_node_of_an_instance_has_to_be_pinned(resource: Make) -> None:
    instance = {"parallelism": {"pipeline": 2, "nodes": 2}, "maxNumSeqs": 64, "maxNumBatchedTokens": 4096}
    one = {"products": ["H100"]}
    other = {"nodeSelector": {"nvidia.com/gpu.product": "A100"}}
    assert found(resource, parameter={**instance, "nodePools": [one, other]}).status == "True"
    assert found(resource, parameter={**instance, "nodePools": [one, {}]}).status == "False"


def test_a_p_on_cpu_has_no_such_condition(resource: Make) -> None:
    assert pinned(resource(parameter={"accelerator": {"type": "CPU"}}).spec) is None
