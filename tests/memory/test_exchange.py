"""Buffers through which tokens get to experts of other ranks."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.memory import Inputs, model_facts, plan_role
from pdinference.memory.figures import GIB, MIB
from tests.memory.configs import DEEPSEEK_V3

Make = Any


def overhead(document: Make, nodes: int = 2, tokens: int | None = 256, **own: Any) -> tuple[float, str]:
    role = {
        "parallelism": {"data": 16, "nodes": nodes, "expert": True} if nodes > 1 else {"data": 8, "expert": True},
        "accelerator": {"products": ["NVIDIA-H200"]},
        "maxNumBatchedTokens": tokens,
        "enforceEager": True,
        **own,
    }
    model = {"source": {"path": "/m"}, "architecture": {"config": DEEPSEEK_V3}}
    resource = PDInference.model_validate(document(model=model, parameter=role, decode=role))
    figure = plan_role(Inputs(resource.spec, model_facts(DEEPSEEK_V3)), Role.DECODE).stage.overhead
    assert figure.value is not None
    return figure.value, figure.note


@pytest.mark.parametrize(
    ("transport", "nodes", "env", "expected"),
    [
        ("allgather_reducescatter", 2, {}, 0),
        ("deepep_high_throughput", 2, {}, 2 * GIB),
        ("deepep_high_throughput", 1, {}, GIB),
        ("deepep_high_throughput", 2, {"VLLM_DEEPEP_BUFFER_SIZE_MB": "512"}, GIB),
    ],
)
def test_buffers_of_a_fixed_size(
    document: Make, transport: str, nodes: int, env: dict[str, str], expected: int
) -> None:
    without, _ = overhead(document, nodes)
    size, _ = overhead(document, nodes, expertTransport=transport, env=env)
    assert size - without == expected


def test_those_of_the_kernels_for_decode_grow_with_the_tokens_of_a_step(document: Make) -> None:
    """DeepSeek-V3: 256 experts, hidden size 7,168. A token back is 14,336 bytes and 56 scales of 4 bytes."""
    without, _ = overhead(document)
    size, note = overhead(document, expertTransport="deepep_low_latency")
    each_way = 256 * 256 * (2 * 7168 + 4 * 56)
    assert size - without == pytest.approx(GIB + 2 * 2 * each_way, abs=MIB)
    assert "GiB of buffers of deepep_low_latency" in note
    twice, _ = overhead(document, expertTransport="deepep_low_latency", tokens=512)
    assert twice - without - GIB == pytest.approx(2 * (size - without - GIB), abs=MIB)


def test_without_a_number_of_tokens_it_is_vllms_for_these_kernels(document: Make) -> None:
    assert overhead(document, expertTransport="deepep_low_latency", tokens=None) == overhead(
        document, expertTransport="deepep_low_latency", tokens=256
    )


def test_the_kernels_for_prefill_record_no_graphs(document: Make) -> None:
    _, graphs = overhead(document, enforceEager=False)
    _, none = overhead(document, enforceEager=False, expertTransport="deepep_high_throughput")
    assert "CUDA graphs" in graphs
    assert "CUDA graphs" not in none


def test_a_backend_in_args_is_planned_too(document: Make) -> None:
    by_field, _ = overhead(document, expertTransport="deepep_high_throughput")
    by_args, _ = overhead(document, args={"all2all-backend": "deepep_high_throughput"})
    assert by_field == by_args


def test_the_plan_says_which_buffers_it_does_not_know(document: Make) -> None:
    _, note = overhead(document, expertTransport="nixl_ep")
    assert note.endswith("Without the buffers of nixl_ep, whose size is not known.")
