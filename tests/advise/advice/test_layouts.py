"""Which arrangements are compared."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.api.v1alpha1.transfer import MOST_INSTANCES
from pdinference.checks import examine
from pdinference.manifests import RenderSettings
from pdinference.memory.split import GPUS_OF_A_HOST
from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.engines import Engines
from pdinference_advise.advice.layouts import EngineGroup, Layout, layouts
from pdinference_advise.advice.offer import parse_offer
from pdinference_advise.advice.resource import Ranges, Scaling, document_of
from pdinference_advise.advice.ways import parse_transports
from tests.advise.advice.questions import inputs_of, llama

WAYS = parse_transports(("nvlink", "tcp"))
SIZES = {"NVIDIA-H200": [1, 2, 4, 8], "NVIDIA-L40S": [1, 2]}


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.integers(0, 6))
def test_arrangements_stay_within_the_offer_and_the_rules(number: int, others: int) -> None:
    gpus = (f"{number}xH200", *((f"{others}xL40S",) if others else ()))
    offer = parse_offer(gpus, ())
    found = list(layouts(offer, SIZES, WAYS))
    assert len(found) == len(set(found))
    most = {pool.product: pool.number for pool in offer.pools}
    for one in found:
        assert all(count <= most[product] for product, count in one.gpus.items())
        if one.parameter is None:
            continue
        assert one.decode.tensor % one.parameter.tensor == 0
        if one.host_local:
            assert one.parameter.product == one.decode.product
            assert one.pods >= 1
            assert one.number // one.pods <= GPUS_OF_A_HOST
            assert one.parameter.number % one.pods == one.decode.number % one.pods == 0
            assert max(one.parameter.number, one.decode.number) // one.pods <= MOST_INSTANCES


def test_two_gpus_give_four_arrangements_of_one_gpu_engines() -> None:
    offer = parse_offer(("2xH200",), ())
    titles = [one.title for one in layouts(offer, {"NVIDIA-H200": [1]}, WAYS)]
    assert titles == [
        "unsplit: 1 x TP 1",
        "unsplit: 2 x TP 1",
        "split: 1 P TP 1 + 1 D TP 1, NVLink",
        "split: 1 P TP 1 + 1 D TP 1, TCP",
    ]


def test_titles_name_the_products_only_where_there_are_several() -> None:
    offer = parse_offer(("1xH200", "2xL40S"), ())
    titles = [one.title for one in layouts(offer, {"NVIDIA-H200": [1], "NVIDIA-L40S": [1]}, WAYS)]
    assert "unsplit: 1 x TP 1 on H200" in titles
    assert "split: 1 P TP 1 on L40S + 1 D TP 1 on L40S, PCIe" in titles
    assert "split: 1 P TP 1 on H200 + 2 D TP 1 on L40S, TCP" in titles


def test_a_model_with_mla_lets_d_have_fewer_ranks_than_p() -> None:
    offer = parse_offer(("3xH200",), ())
    of_mla = set(layouts(offer, SIZES, WAYS, mla=True)) - set(layouts(offer, SIZES, WAYS))
    assert {(one.parameter.tensor, one.decode.tensor) for one in of_mla if one.parameter} == {(2, 1)}


@pytest.mark.parametrize(
    "layout",
    [
        Layout(EngineGroup("NVIDIA-H200", 2, 3)),
        Layout(EngineGroup("NVIDIA-H200", 1, 4), EngineGroup("NVIDIA-H200", 1, 2), WAYS[0]),
        Layout(EngineGroup("NVIDIA-H200", 2, 1), EngineGroup("NVIDIA-H200", 1, 1), WAYS[1]),
        Layout(EngineGroup("NVIDIA-H200", 1, 1), EngineGroup("NVIDIA-L40S", 1, 3), WAYS[1], fp8=True),
        Layout(EngineGroup("NVIDIA-H200", 1, 1), EngineGroup("NVIDIA-H200", 1, 1), parse_transports(("rdma=40",))[0]),
    ],
    ids=lambda one: one.title,
)
@pytest.mark.parametrize("scaled", [False, True])
def test_the_resource_of_each_arrangement_is_valid(layout: Layout, scaled: bool) -> None:
    own_pods = layout.split and not layout.host_local
    ranges = Ranges(Scaling(1, 4) if own_pods else None, Scaling(1, 8), 24) if scaled else Ranges()
    found = examine(document_of(llama(), layout, ranges), RenderSettings())
    assert found.problems == ()
    assert found.resource is not None
    spec = found.resource.spec
    assert sum(spec.gpus(role) * spec.of(role).replicas for role in spec.workload_roles) == layout.number
    assert spec.transfers_kv is layout.split
    assert (spec.host_local is not None) is layout.host_local
    assert spec.decode.autoscaled is scaled


def test_engines_have_the_limits_of_the_memory_plan() -> None:
    engines = Engines(llama(), inputs_of(llama()), prompt=1000)
    built = engines.build(Layout(EngineGroup("NVIDIA-H200", 1, 1), EngineGroup("NVIDIA-H200", 1, 1), WAYS[0]))
    split = built.arrangement.split
    assert split is not None
    assert (split.kind.limits.step_tokens, built.arrangement.kind.limits.step_tokens) == (8192, 2048)
    assert split.kind.limits.block == 128
    assert split.token_bytes == 131_072
    assert split.groups == 1
    whole = engines.build(Layout(EngineGroup("NVIDIA-H200", 1, 1))).arrangement
    assert whole.kind.limits.block == 16
    assert whole.kind.limits.kv_tokens > 800_000


def test_the_builtin_calibration_of_a_dense_model_is_extrapolated_to_experts() -> None:
    config = {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151_936, "max_position_embeddings": 40_960,
    }  # fmt: skip
    document = llama()
    document["spec"]["model"]["architecture"] = {"config": config}
    unsplit = Layout(EngineGroup("NVIDIA-H200", 1, 1), None, None)
    assert Engines(llama(), inputs_of(llama()), prompt=1000).build(unsplit).source is TimeSource.INTERPOLATED
    assert Engines(document, inputs_of(document), prompt=1000).build(unsplit).source is TimeSource.EXTRAPOLATED
