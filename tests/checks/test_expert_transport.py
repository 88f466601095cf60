"""How tokens get to experts of other ranks: chosen by role, product and nodes, rendered, planned, and refused early."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import examine
from pdinference.engine.vllm import engine_command
from pdinference.manifests import RenderSettings
from tests.memory.configs import DEEPSEEK_V2_LITE

Json = dict[str, Any]
Make = Callable[..., Json]
AMD: Json = {"resourceName": "amd.com/gpu", "products": ["AMD-Instinct-MI300X"]}
RACK: Json = {"domain": "nvidia.com/gpu.clique"}


def spread(products: Json | list[str], nodes: int = 2, **more: Any) -> Json:
    accelerator = products if isinstance(products, dict) else {"products": products}
    parallelism = {"data": 4, "nodes": nodes, "expert": True}
    if nodes == 1:
        del parallelism["nodes"]
    return {"parallelism": parallelism, "accelerator": accelerator, **more}


def made(document: Make, role: Json, transport: str | None = "auto", **spec: Any) -> Json:
    engine = {"expertTransport": transport} if transport else {}
    model = {"source": {"path": "/m"}, "architecture": {"config": DEEPSEEK_V2_LITE}, **spec.pop("model", {})}
    return document(**{"model": model, "engine": engine, "parameter": role, "decode": role, **spec})


def backends(resource: Json) -> tuple[str, ...]:
    parsed = PDInference.model_validate(resource)
    commands = [engine_command(parsed, role).arguments for role in parsed.spec.engine_roles]
    found = [[word for word in words if word.startswith("--all2all-backend")] for words in commands]
    return tuple(words[-1].partition("=")[2] if words else "" for words in found)


def problems(resource: Json) -> dict[str, str]:
    return {one.field: one.message for one in examine(resource, RenderSettings()).problems}


@pytest.mark.parametrize(
    ("role", "transport", "expected"),
    [
        (spread(["NVIDIA-H200"]), "auto", ("deepep_high_throughput", "deepep_low_latency")),
        (spread(["NVIDIA-H200"]), None, ("", "")),
        (spread(["NVIDIA-H200"], nodes=1), "auto", ("", "")),
        (spread(["NVIDIA-A100-SXM4-80GB"]), "auto", ("", "")),
        (spread(["NVIDIA-H200", "NVIDIA-A100-SXM4-80GB"]), "auto", ("", "")),
        (spread(AMD), "auto", ("mori_high_throughput", "mori_low_latency")),
        (spread(["NVIDIA-GB200"], placement=RACK), "auto", ("flashinfer_nvlink_one_sided",) * 2),
        (spread(["NVIDIA-GB200"]), "auto", ("deepep_high_throughput", "deepep_low_latency")),
        (spread(["NVIDIA-H200"], nodes=1), "deepep_low_latency", ("deepep_low_latency",) * 2),
    ],
)
def test_the_backend_follows_role_product_and_nodes(
    document: Make, role: Json, transport: str | None, expected: tuple[str, ...]
) -> None:
    resource = made(document, role, transport)
    assert backends(resource) == expected
    assert problems(resource) == {}


def test_a_role_has_a_backend_of_its_own(document: Make) -> None:
    own = spread(["NVIDIA-H200"], expertTransport="nixl_ep")
    resource = made(document, spread(["NVIDIA-H200"]), "deepep_v2", decode=own)
    assert backends(resource) == ("deepep_v2", "nixl_ep")


def test_a_role_that_does_both_keeps_the_default(document: Make) -> None:
    resource = made(document, spread(["NVIDIA-H200"]), router={"disaggregation": "Adaptive"})
    assert backends(resource) == ("", "")


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"role": {"parallelism": {"data": 2}}}, "spec.engine.expertTransport", "Set parallelism.expert"),
        (
            {"role": spread({"type": "CPU"}, nodes=1), "transport": "nixl_ep"},
            "spec.engine.expertTransport",
            "nixl_ep needs GPUs",
        ),
        (
            {"role": spread(["NVIDIA-H200"]), "transport": "mori_low_latency"},
            "spec.engine.expertTransport",
            "is for AMD's GPUs, and spec.decode.accelerator requests NVIDIA's (nvidia.com/gpu)",
        ),
        ({"role": spread(AMD), "transport": "nixl_ep"}, "spec.engine.expertTransport", "is for NVIDIA's GPUs"),
        (
            {"role": spread(["NVIDIA-H200"]), "transport": "deepep_v2", "model": {"lora": {}}},
            "spec.engine.expertTransport",
            "LoRA adapters of experts with allgather_reducescatter alone",
        ),
        (
            {"role": spread(["NVIDIA-H200"], args={"all2all-backend": "nixl_ep"})},
            "spec.parameter.args.all2all-backend",
            "spec.engine.expertTransport sets this option",
        ),
        (
            {
                "role": spread(["NVIDIA-H200"]),
                "model": {"architecture": {"config": {**DEEPSEEK_V2_LITE, "hidden_size": 16384}}},
            },
            "spec.engine.expertTransport",
            "takes hidden sizes of up to 8,192, and the model has 16,384",
        ),
    ],
    ids=["no experts", "CPU", "AMD's on NVIDIA", "NVIDIA's on AMD", "LoRA", "twice", "hidden size"],
)
def test_what_cannot_work_is_refused_with_its_field(
    document: Make, changes: dict[str, Any], field: str, message: str
) -> None:
    found = problems(made(document, **changes))
    assert message in found.get(field, ""), found


def test_between_nodes_it_says_which_rights_are_missing(document: Make) -> None:
    def warned(resource: Json) -> list[str]:
        warnings = examine(resource, RenderSettings()).warnings
        return [one.field for one in warnings if "needs capabilities" in one.message]

    rights = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
    template: Json = {"spec": {"containers": [{"name": "vllm", **rights}]}}
    able = spread(["NVIDIA-H200"], podTemplate=template)
    assert warned(made(document, spread(["NVIDIA-H200"]))) == ["spec.engine.expertTransport"] * 2
    assert warned(made(document, spread(["NVIDIA-H200"], nodes=1))) == []
    resource = PDInference.model_validate(made(document, able))
    assert resource.spec.of(Role.DECODE).pod_template
    assert warned(made(document, able)) == []
