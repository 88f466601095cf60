"""A role without products, on common GPUs."""

from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.memory import Inputs, model_facts, plan_role, stated_memory
from pdinference.memory.comparison.common_gpus import _OFFERED, GPUPlan, common_gpu_plans
from pdinference.memory.gpus import gpu_memory
from tests.memory import configs
from tests.memory.plans import known

NVIDIA_DRA = {"devices": {"deviceClassName": "gpu.nvidia.com"}}


def on_common_gpus(accelerator: Any, role: Role = Role.DECODE, **inputs: Any) -> tuple[GPUPlan, ...]:
    model = {"source": {"path": "/models/any"}, "maxModelLength": 16384}
    spec = Spec.model_validate({"model": model, role.value: {"accelerator": accelerator}})
    made = Inputs(spec, model_facts(configs.LLAMA_8B), **inputs)
    return common_gpu_plans(made, role, plan_role(made, role))


def test_every_product_is_in_the_table_by_rising_memory() -> None:
    for products in _OFFERED.values():
        sizes = [known(gpu_memory(product).value) for product in products]
        assert [round(size / 2**30 / 2) for size in sizes] == sorted(round(size / 2**30 / 2) for size in sizes)


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_each_common_gpu_is_planned_like_a_named_one(role: Role) -> None:
    found = on_common_gpus({}, role)
    assert len(found) >= 8
    for each in found:
        spec = Spec.model_validate(
            {
                "model": {"source": {"path": "/models/any"}, "maxModelLength": 16384},
                role.value: {"accelerator": {"products": [each.product]}},
            }
        )
        assert each.plan == plan_role(Inputs(spec, model_facts(configs.LLAMA_8B)), role)
        assert each.fits is True
        assert each.as_json()["product"] == each.product


@pytest.mark.parametrize(
    ("accelerator", "first"),
    [
        ({"resourceName": "nvidia.com/gpu.shared"}, "NVIDIA-L4"),
        (NVIDIA_DRA, "NVIDIA-L4"),
        ({"resourceName": "amd.com/gpu"}, "AMD-Instinct-MI210"),
        ({"resourceName": "habana.ai/gaudi"}, "Gaudi2"),
    ],
)
def test_the_vendor_follows_from_the_resource(accelerator: Any, first: str) -> None:
    assert on_common_gpus(accelerator)[0].product == first


@pytest.mark.parametrize(
    "accelerator",
    [
        {"resourceName": "nvidia.com/mig-1g.10gb"},
        {"resourceName": "gpu.intel.com/i915"},
        {"products": ["NVIDIA-L4"]},
        {"products": ["Unheard-Of"]},
        {"memory": "80Gi"},
        {"type": "CPU"},
    ],
)
def test_none_where_the_device_is_known_or_of_an_unknown_vendor(accelerator: Any) -> None:
    assert on_common_gpus(accelerator) == ()


def test_none_where_memory_is_stated() -> None:
    assert on_common_gpus({}, memory=stated_memory(80 * 2**30)) == ()


def test_none_where_only_some_nodes_name_a_product() -> None:
    pools = [{"products": ["NVIDIA-L4"]}, {}]
    document = {
        "model": {"source": {"path": "/models/any"}},
        "parameter": {
            "parallelism": {"pipeline": 2, "nodes": 2},
            "nodePools": pools,
            "maxNumBatchedTokens": 8192,
            "maxNumSeqs": 256,
        },
    }
    made = Inputs(Spec.model_validate(document), model_facts(configs.LLAMA_8B))
    assert common_gpu_plans(made, Role.PARAMETER, plan_role(made, Role.PARAMETER)) == ()
