"""Copies of experts (EPLB): rendered for the roles that spread experts, and refused where devices cannot share them."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import examine
from pdinference.engine.vllm import engine_command
from pdinference.manifests import RenderSettings
from pdinference.memory import Inputs, known_facts, model_facts, plan_role
from pdinference.memory.settings import Settings
from tests.memory.configs import DEEPSEEK_V2_LITE

Json = dict[str, Any]
Make = Callable[..., Json]
SPREAD: Json = {"parallelism": {"data": 4, "expert": True}, "accelerator": {"products": ["NVIDIA-H200"]}}
EXPERTS = DEEPSEEK_V2_LITE["n_routed_experts"]


def problems(made: Json) -> dict[str, str]:
    return {one.field: one.message for one in examine(made, RenderSettings()).problems}


def balanced(document: Make, redundant: int = 0, **spec: Any) -> Json:
    engine = {"expertBalance": {"redundant": redundant}, **spec.pop("engine", {})}
    source = {"path": "/m"}
    model = {"source": source, "architecture": {"config": DEEPSEEK_V2_LITE}}
    return document(**{"model": model, "engine": engine, "parameter": SPREAD, "decode": SPREAD, **spec})


def test_roles_that_spread_experts_get_copies_and_the_plan_counts_them(document: Make) -> None:
    made = balanced(document, redundant=8, parameter={"accelerator": SPREAD["accelerator"]})
    assert problems(made) == {}
    resource = PDInference.model_validate(made)
    of_p, of_d = (engine_command(resource, role).arguments for role in (Role.PARAMETER, Role.DECODE))
    assert "--enable-eplb" not in of_p
    assert {"--enable-eplb", '--eplb-config={"num_redundant_experts":8}'} <= set(of_d)
    assert _planned(made).redundant_experts == 8


@pytest.mark.parametrize(("redundant", "enough"), [(1, 4), (5, 8)])
def test_devices_share_experts_and_copies_evenly(document: Make, redundant: int, enough: int) -> None:
    assert EXPERTS % 4 == 0
    found = problems(balanced(document, redundant))
    assert found.keys() == {"spec.engine.expertBalance.redundant"}
    assert f"Use {enough}." in found["spec.engine.expertBalance.redundant"]
    assert problems(balanced(document, enough)) == {}


def test_one_device_has_all_experts(document: Make) -> None:
    alone = {"parallelism": {"expert": True}, "accelerator": SPREAD["accelerator"]}
    found = problems(balanced(document, parameter=alone, decode=alone))
    assert "Set parallelism.expert" in found["spec.engine.expertBalance"]


def test_cpus_do_not_move_experts(document: Make) -> None:
    spread = {"parallelism": SPREAD["parallelism"], "accelerator": {"type": "CPU"}}
    found = problems(balanced(document, parameter=spread, decode=spread))
    assert "vLLM moves experts between GPUs alone" in found["spec.engine.expertBalance"]


def test_the_options_are_not_stated_twice(document: Make) -> None:
    found = problems(balanced(document, decode={**SPREAD, "args": {"enable-eplb": True}}))
    assert "Remove one of the two" in found["spec.decode.args.enable-eplb"]
    assert problems(balanced(document, engine={"args": {"seed": 1}})).keys() == {"spec.engine.args"}


def _planned(made: Json) -> Settings:
    spec = PDInference.model_validate(made).spec
    config, checkpoint = known_facts(spec, None)
    assert config is not None
    return plan_role(Inputs(spec, model_facts(config), checkpoint), Role.DECODE).settings
