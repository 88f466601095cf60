"""Warnings about models with a recurrent state."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.admission.review import API_VERSION, reviewed
from pdinference.checks import examine
from pdinference.manifests import RenderSettings
from tests.memory.configs import LLAMA_8B

Make = Callable[..., dict[str, Any]]
Json = dict[str, Any]

HYBRID = LLAMA_8B | {"model_type": "qwen3_next", "linear_num_value_heads": 32}
DS = {"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}
CONNECTOR, VERIFICATION = "spec.transfer.connector", "spec.transfer.verification"
LAYOUT = "spec.engine.env.VLLM_SSM_CONV_STATE_LAYOUT"


def spec_of(document: Make, config: Json, **spec: Any) -> Json:
    return document(model={"source": {"path": "/a"}, "architecture": {"config": config}}, **spec)


def warnings(document: Make, config: Json = HYBRID, **spec: Any) -> dict[str, str]:
    found = examine(spec_of(document, config, **spec), RenderSettings())
    assert not found.problems
    return {one.field: one.message for one in found.warnings if "recurrent state" in one.message}


@pytest.mark.parametrize(
    "sign",
    [
        {"mamba_d_state": 16},
        {"ssm_state_size": 128},
        {"layer_types": ["linear_attention", *["full_attention"] * 31]},
        {"layer_types": ["conv", *["full_attention"] * 31]},
        {"model_type": "minimax_m1", "attn_type_list": [0, 1]},
        {"text_config": HYBRID},
    ],
    ids=str,
)
def test_each_kind_of_recurrent_layers_is_known(document: Make, sign: Json) -> None:
    assert warnings(document, LLAMA_8B | {"model_type": "other"} | sign)


@pytest.mark.parametrize(
    "config",
    [
        LLAMA_8B,
        LLAMA_8B | {"index_head_dim": 128},
        LLAMA_8B | {"model_type": "minimax_m2", "attn_type_list": [1, 1]},
        LLAMA_8B | {"sliding_window": 1024},
    ],
    ids=["llama", "sparse attention", "attention in every layer", "sliding window"],
)
def test_other_models_are_not_warned_of(document: Make, config: Json) -> None:
    assert not warnings(document, config)


def test_the_canary_decides_and_without_it_the_warning_names_it(document: Make) -> None:
    engine = {"env": DS}
    required = warnings(document, engine=engine)
    assert required.keys() == {CONNECTOR}
    assert "vLLM issue 52234" in required[CONNECTOR]
    assert required[CONNECTOR].endswith("The canary decides. To avoid the risk, set spec.mode: Aggregated.")
    for mode in ("Warn", "Off"):
        loose = warnings(document, engine=engine, transfer={"verification": mode})
        assert loose.keys() == {VERIFICATION}
        assert loose[VERIFICATION].endswith("Set Required, or spec.mode: Aggregated.")


def test_without_a_transfer_there_is_no_risk(document: Make) -> None:
    assert not warnings(document, mode="Aggregated")


def test_nixl_needs_the_layout_of_both_roles(document: Make) -> None:
    assert "fails at start" in warnings(document)[LAYOUT]
    assert LAYOUT in warnings(document, decode={"env": DS})
    assert LAYOUT not in warnings(document, parameter={"env": DS}, decode={"env": DS})
    assert LAYOUT not in warnings(document, transfer={"connector": "Mooncake", "rdma": {"resourceName": "rdma/ib"}})


def test_a_connector_that_cannot_move_the_state_is_named(document: Make) -> None:
    lmcache = {"connector": "LMCache", "lmCache": {"remoteUrl": "lm://lmcache.cache.svc:65432"}}
    found = warnings(document, transfer=lmcache)
    assert found.keys() == {CONNECTOR}
    assert "fails at start with it and LMCache. Use Nixl or Mooncake, or set spec.mode: Aggregated." in found[CONNECTOR]


@pytest.mark.parametrize("mode", ["Required", "Warn"])
def test_the_webhook_prints_the_whole_warning_and_allows(document: Make, mode: str) -> None:
    made = spec_of(document, HYBRID, transfer={"verification": mode})
    review = {"apiVersion": API_VERSION, "request": {"uid": "u", "operation": "CREATE", "object": made}}
    response = reviewed(review, RenderSettings())["response"]
    assert response["allowed"] is True
    (warning,) = [text for text in response["warnings"] if "52234" in text]
    assert warning.endswith("spec.mode: Aggregated.")
