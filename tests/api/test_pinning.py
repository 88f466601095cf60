"""D takes the products of P where this is unambiguous, and roles with products count as pinned."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.roles.accelerator import Accelerator
from pdinference.api.v1alpha1.roles.pinning import names_product

Make = Callable[..., PDInference]
LABEL = "nvidia.com/gpu.product"
H100 = {"accelerator": {"products": ["H100"]}}
ZONE = {"nodeSelector": {"zone": "a"}}


def required(*keys: str, operator: str = "In") -> dict[str, Any]:
    """A node affinity whose alternatives each have a condition on one label."""
    values = {"values": ["H100"]} if operator in {"In", "NotIn"} else {}
    terms = [{"matchExpressions": [{"key": key, "operator": operator, **values}]} for key in keys]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def overlaid(**spec: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": spec}}


def of_d(made: PDInference) -> Accelerator:
    return made.spec.of(Role.DECODE).accelerator


@pytest.mark.parametrize(
    "decode",
    [
        {},
        {"accelerator": {}},
        {"accelerator": {"products": None}},
        {"accelerator": {"products": []}},
        {"accelerator": {"productLabel": "other/label"}},
        {"placement": {"tolerations": [{"key": "a", "operator": "Exists"}], "queueName": "q"}},
        overlaid(imagePullSecrets=[{"name": "registry"}]),
        overlaid(affinity={"podAntiAffinity": {}}),
    ],
    ids=str,
)
def test_d_takes_the_products_of_p(resource: Make, decode: dict[str, Any]) -> None:
    made = resource(parameter=H100, decode=decode)
    assert (of_d(made).products, of_d(made).product_label) == (["H100"], LABEL)
    assert made.spec.decode.accelerator.products == [], "the spec is as it was written"


@pytest.mark.parametrize(
    "decode",
    [
        {"accelerator": {"products": ["L40S"]}},
        {"accelerator": {"type": "CPU"}},
        {"accelerator": {"resourceName": "amd.com/gpu"}},
        {"accelerator": {"devices": {"deviceClassName": "gpu.example.com"}}},
        {"placement": ZONE},
        {"placement": {"nodeSelector": {"kubernetes.io/os": "linux"}}},
        {"placement": {"nodeAffinity": required("pool")}},
        overlaid(nodeSelector={"pool": "l40s"}),
        overlaid(affinity={"nodeAffinity": required("pool")}),
    ],
    ids=str,
)
def test_a_d_that_chooses_for_itself_takes_nothing(resource: Make, decode: dict[str, Any]) -> None:
    made = resource(parameter=H100, decode=decode)
    assert made.spec.of(Role.DECODE) == made.spec.decode


@pytest.mark.parametrize("choice", [{"placement": ZONE}, overlaid(nodeSelector={"zone": "a"})], ids=str)
def test_a_d_that_chooses_nodes_as_p_does_takes_products(resource: Make, choice: dict[str, Any]) -> None:
    assert of_d(resource(parameter=H100 | choice, decode=choice)).products == ["H100"]


def test_label_and_memory_of_the_products_come_with_them(resource: Make) -> None:
    parameter = {"accelerator": {"products": ["X9"], "productLabel": "example.com/product", "memory": "64Gi"}}
    taken = of_d(resource(parameter=parameter))
    assert (taken.products, taken.product_label, taken.memory) == (["X9"], "example.com/product", "64Gi")
    stated = of_d(resource(parameter=parameter, decode={"accelerator": {"memory": "48Gi"}}))
    assert (stated.products, stated.memory) == (["X9"], "48Gi")


def test_d_takes_the_products_of_all_nodes_of_p(resource: Make) -> None:
    sizes = {"maxNumSeqs": 64, "maxNumBatchedTokens": 4096}
    instance = {"parallelism": {"pipeline": 2, "nodes": 2}, **sizes}
    pools = [{"products": ["H100"]}, {"products": ["A100"]}]
    assert of_d(resource(parameter={**instance, "nodePools": pools})).products == ["A100", "H100"]
    assert of_d(resource(parameter={**instance, "nodePools": [pools[0], {}]})).products == []


@pytest.mark.parametrize(
    ("role", "named"),
    [
        ({}, False),
        ({"accelerator": {"products": []}}, False),
        (H100, True),
        ({"placement": ZONE}, False),
        ({"placement": {"nodeSelector": {LABEL: "H100"}}}, True),
        (overlaid(nodeSelector={LABEL: "H100"}), True),
        ({"placement": {"nodeAffinity": required(LABEL, LABEL)}}, True),
        ({"placement": {"nodeAffinity": required(LABEL, "zone")}}, False),
        ({"placement": {"nodeAffinity": required(LABEL, operator="NotIn")}}, False),
        ({"placement": {"nodeAffinity": required(LABEL, operator="Exists")}}, False),
        (overlaid(affinity={"nodeAffinity": required(LABEL)}), True),
        # These replace the terms that the operator writes for products.
        (H100 | overlaid(affinity={"nodeAffinity": required("zone")}), False),
    ],
    ids=str,
)
def test_a_role_names_a_product_where_pods_need_it(resource: Make, role: dict[str, Any], named: bool) -> None:
    assert names_product(resource(parameter=role).spec.parameter) is named


@pytest.mark.parametrize(
    "overlay",
    [
        {"spec": []},
        {"spec": {"nodeSelector": ["a"], "affinity": "b"}},
        {"spec": {"affinity": {"nodeAffinity": [1]}}},
        {"spec": {"affinity": {"nodeAffinity": required() | {"x": 1}}}},
        {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [1, {"matchExpressions": {"key": LABEL}}, {"matchExpressions": [7, {"key": {}}]}],
        }}}}},
    ],
    ids=str,
)  # fmt: skip
def test_an_overlay_of_any_shape_is_read(resource: Make, overlay: dict[str, Any]) -> None:
    made = resource(parameter=H100, decode={"podTemplate": overlay})
    assert isinstance(names_product(made.spec.of(Role.DECODE)), bool)
