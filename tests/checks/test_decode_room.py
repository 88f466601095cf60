"""The warning that D has room for fewer than two requests for each GPU, with suggested changes."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.admission.review import API_VERSION, reviewed
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks import Examination, examine
from pdinference.checks.decode_room import more_room
from pdinference.manifests import RenderSettings
from pdinference.memory import Inputs, instance, model_facts, plan_role, stated_memory
from tests.conftest import REPOSITORY, example_documents
from tests.memory.configs import DEEPSEEK_V2_LITE, LLAMA_1B, LLAMA_2_70B, LLAMA_8B

Make = Callable[..., dict[str, Any]]
A100 = {"products": ["NVIDIA-A100-SXM4-80GB"]}
FOUR = {"parallelism": {"tensor": 2}, "accelerator": A100}
ENGINE = {"gpuMemoryUtilization": 0.85, "enforceEager": True, "maxNumBatchedTokens": 4096}


def examined(document: Make, config: dict[str, Any], **spec: Any) -> Examination:
    model = {"source": {"path": "/a"}, "architecture": {"config": config}, **spec.pop("model", {})}
    return examine(document(model=model, **spec), RenderSettings())


def the_note(document: Make, **changes: Any) -> Examination:
    spec = {"parameter": FOUR, "decode": FOUR, "engine": ENGINE, "model": {"maxModelLength": 4096}, **changes}
    return examined(document, LLAMA_2_70B, **spec)


def room(found: Examination) -> list[Problem]:
    return [warning for warning in found.warnings if "fewer than 2" in warning.message]


def test_the_note_on_four_a100s_is_accepted_with_a_warning(document: Make) -> None:
    found = the_note(document)
    assert found.problems == ()
    (warning,) = room(found)
    assert str(warning) == (
        "spec.decode: The KV cache of an instance holds 14,976 tokens: 3.7 requests of 4,096, fewer than 2 for each of "
        "its 2 GPUs. More room: spec.engine.kvCache.dtype: fp8 (7.3 requests); spec.decode.parallelism.tensor: 4 "
        '(110.6 requests); spec.decode.accelerator.products: ["NVIDIA-H200"] (85.8 requests); '
        "spec.decode.gpuMemoryUtilization: 0.9 (10.0 requests); spec.model.maxModelLength: 3072 (4.9 requests of that "
        "length); spec.decode.kvTiers.cpu.size: 64Gi (209,664 tokens of preempted requests)."
    )


def test_the_webhook_warns_and_allows(document: Make) -> None:
    model = {"source": {"path": "/a"}, "architecture": {"config": LLAMA_2_70B}, "maxModelLength": 4096}
    made = document(model=model, engine=ENGINE, parameter=FOUR, decode=FOUR)
    review = {"apiVersion": API_VERSION, "request": {"uid": "u", "operation": "CREATE", "object": made}}
    response = reviewed(review, RenderSettings())["response"]
    assert response["allowed"] is True
    (warning,) = [text for text in response["warnings"] if "fewer than 2" in text]
    assert len(warning) <= 256
    assert "spec.decode.parallelism.tensor: 4" in warning, "the first remedies are there when it is cut"


@pytest.mark.parametrize(
    ("tensor", "length", "warns"),
    [(2, 4096, True), (2, 3968, True), (2, 3712, False), (4, 4096, False)],
)
def test_two_requests_for_each_gpu_are_enough(document: Make, tensor: int, length: int, warns: bool) -> None:
    decode = {"parallelism": {"tensor": tensor}, "accelerator": A100}
    found = the_note(document, decode=decode, model={"maxModelLength": length})
    assert bool(room(found)) is warns


def test_it_is_a_warning_under_either_policy(document: Make) -> None:
    for policy in ("Enforce", "Warn"):
        found = the_note(document, memoryPolicy=policy)
        assert found.problems == ()
        assert len(room(found)) == 1


def test_a_model_that_does_not_fit_is_not_called_small_as_well(document: Make) -> None:
    small = FOUR | {"accelerator": {"products": ["NVIDIA-L4"]}}
    for policy in ("Enforce", "Warn"):
        found = the_note(document, decode=small, memoryPolicy=policy)
        assert found.memory.fits is False
        assert not room(found)


def test_cpu_and_unknown_devices_are_not_warned_of(document: Make) -> None:
    cpu = {"accelerator": {"type": "CPU"}, "env": {"VLLM_CPU_KVCACHE_SPACE": "4"}}
    on_cpu = examined(document, LLAMA_1B, parameter=cpu, decode=cpu, model={"maxModelLength": 65536})
    assert (on_cpu.problems, room(on_cpu)) == ((), [])
    assert not room(examined(document, LLAMA_8B))


@pytest.mark.parametrize("name", ["tiny-cpu", "cpu-decode-disk-tier", "llama-70b-four-gpus", "awq-24gb", "lora"])
def test_examples_with_room_are_not_warned_of(name: str) -> None:
    (made,) = example_documents(REPOSITORY / f"examples/{name}.yaml")
    assert not room(examine(made, RenderSettings()))


def planned_inputs(config: dict[str, Any], decode: Any, **inputs: Any) -> Inputs:
    spec = Spec.model_validate(
        {
            "model": {"source": {"path": "/a"}, "maxModelLength": 4096},
            "engine": ENGINE,
            "parameter": FOUR,
            "decode": decode,
        }
    )
    return Inputs(spec, model_facts(config), **inputs)


def test_every_change_gives_enough_or_is_a_tier() -> None:
    inputs = planned_inputs(LLAMA_2_70B, FOUR)
    found = more_room(inputs, plan_role(inputs, Role.DECODE))
    *rooms, tier = found
    assert rooms
    assert all(instance.is_small(each.plan) is False for each in rooms)
    assert tier.plan.tiers["cpu"].value == 209_664
    assert tier.as_json()["tierCapacityTokens"]


def test_stated_memory_grows_instead_of_products() -> None:
    inputs = planned_inputs(LLAMA_2_70B, {"parallelism": {"tensor": 2}}, memory=stated_memory(79 * 2**30))
    changes = [each.change for each in more_room(inputs, plan_role(inputs, Role.DECODE))]
    assert "spec.decode.accelerator.memory: 80Gi" in changes


def test_tiers_that_are_there_are_not_proposed() -> None:
    inputs = planned_inputs(LLAMA_2_70B, FOUR | {"kvTiers": {"cpu": {"size": "8Gi"}}})
    changes = [each.change for each in more_room(inputs, plan_role(inputs, Role.DECODE))]
    assert not any("kvTiers" in change for change in changes)


def test_data_parallel_copies_count_together() -> None:
    inputs = planned_inputs(DEEPSEEK_V2_LITE, {"parallelism": {"tensor": 2, "data": 2}, "accelerator": A100})
    plan = plan_role(inputs, Role.DECODE)
    assert instance.devices(plan) == 4
    assert instance.tokens(plan).value == 2 * (plan.tokens.value or 0)
    assert instance.concurrency(plan).value == pytest.approx(2 * (plan.concurrency.value or 0))
