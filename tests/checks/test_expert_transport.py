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
    parallelism = {"data": 8 * nodes, "nodes": nodes, "expert": True}
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
        (spread(["NVIDIA-GB200"], placement=RACK), "auto", ("", "")),
        (spread(["NVIDIA-H200"], parallelism={"data": 8, "nodes": 2, "expert": True}), "auto", ("", "")),
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


@pytest.mark.parametrize("spec", [{"router": {"disaggregation": "Adaptive"}}, {"model": {"lora": {}}}])
def test_auto_keeps_the_default_where_roles_do_both_and_with_adapters(document: Make, spec: Json) -> None:
    resource = made(document, spread(["NVIDIA-H200"]), **spec)
    assert backends(resource) == ("", "")
    assert problems(resource) == {}


def test_options_of_the_other_role_are_no_contradiction(document: Make) -> None:
    own = spread(["NVIDIA-H200"], expertTransport="deepep_low_latency")
    other = spread(["NVIDIA-H200"], args={"all2all-backend": "deepep_high_throughput"})
    assert problems(made(document, other, None, decode=own)) == {}
    twice = problems(made(document, other, None, decode={**own, "args": {"all2all-backend": "nixl_ep"}}))
    assert twice == {
        "spec.decode.args.all2all-backend": "spec.decode.expertTransport sets this option. Remove one of the two."
    }


def test_kernels_with_small_steps_get_vllms_own_number_of_tokens(document: Make) -> None:
    role = spread(["NVIDIA-H200"], nodes=1)
    words = made(document, role, decode={**role, "expertTransport": "deepep_low_latency"})
    command = engine_command(PDInference.model_validate(words), Role.DECODE).arguments
    assert not any("max-num-batched-tokens" in word for word in command)
    more = made(document, role, decode={**role, "expertTransport": "deepep_low_latency", "maxNumSeqs": 512})
    assert "--max-num-batched-tokens=512" in engine_command(PDInference.model_validate(more), Role.DECODE).arguments


def test_a_model_that_does_not_fit_is_told_what_would(document: Make) -> None:
    """Fewer tokens a step, or the default backend, and no older product, with which `auto` would choose that one."""
    role = spread(["NVIDIA-H200"], expertTransport="deepep_low_latency", maxNumBatchedTokens=131072)
    (text,) = problems(made(document, role, None, decode=spread(["NVIDIA-H200"]))).values()
    assert "spec.parameter.maxNumBatchedTokens: 256" in text
    assert "spec.parameter.expertTransport: allgather_reducescatter" in text
    assert "A100" not in text


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
            "is for AMD's GPUs, and spec.decode.accelerator requests nvidia.com/gpu",
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
        *(
            (
                {
                    "role": spread(["NVIDIA-H200"]),
                    "transport": backend,
                    "model": {"architecture": {"config": {**DEEPSEEK_V2_LITE, "hidden_size": 16384}}},
                },
                "spec.engine.expertTransport",
                "takes hidden sizes of up to 8,192, and the model has 16,384",
            )
            for backend in ("deepep_low_latency", "nixl_ep")
        ),
        (
            {
                "role": spread(["NVIDIA-H200"], parallelism={"data": 8, "nodes": 2, "expert": True}),
                "transport": "deepep_high_throughput",
            },
            "spec.engine.expertTransport",
            "needs 8 devices on each node of an instance, and spec.decode.parallelism makes 4",
        ),
        (
            {
                "role": spread(["NVIDIA-H200"], nodes=1, parallelism={"data": 3, "expert": True}),
                "transport": "deepep_low_latency",
            },
            "spec.engine.expertTransport",
            "64 are no multiple of the 3 devices of spec.decode.parallelism",
        ),
        (
            {"role": spread({"resourceName": "gpu.intel.com/i915"}), "transport": "deepep_low_latency"},
            "spec.engine.expertTransport",
            "is for NVIDIA's and AMD's GPUs, and spec.decode.accelerator requests gpu.intel.com/i915",
        ),
    ],
    ids=["no experts", "CPU", "AMD's", "NVIDIA's", "LoRA", "twice", "hidden", "hidden 2", "nodes", "experts", "Intel"],
)
def test_what_cannot_work_is_refused_with_its_field(
    document: Make, changes: dict[str, Any], field: str, message: str
) -> None:
    found = problems(made(document, **changes))
    assert message in found.get(field, ""), found


def test_between_nodes_it_says_which_rights_are_missing(document: Make) -> None:
    def warned(resource: Json) -> list[str]:
        warnings = examine(resource, RenderSettings()).warnings
        return [one.field for one in warnings if "policy.capabilities" in one.message]

    rights = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
    template: Json = {"spec": {"containers": [{"name": "vllm", **rights}]}}
    able = spread(["NVIDIA-H200"], podTemplate=template)
    assert warned(made(document, spread(["NVIDIA-H200"]))) == ["spec.engine.expertTransport"] * 2
    assert warned(made(document, spread(["NVIDIA-H200"], nodes=1))) == []
    assert warned(made(document, spread({"type": "CPU"}), "nixl_ep")) == []  # a problem says more
    resource = PDInference.model_validate(made(document, able))
    assert resource.spec.of(Role.DECODE).pod_template
    assert warned(made(document, able)) == []
