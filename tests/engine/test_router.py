"""The router's command."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.cli.router import run_command
from pdinference.engine.router import router_command

Make = Callable[..., PDInference]
SLEEPY: dict[str, Any] = {
    "parameter": {"autoscaling": {"maxReplicas": 2}},
    "decode": {"autoscaling": {"maxReplicas": 2}},
    "autoscaling": {"scaleToZero": {"maxQueuedRequests": 7, "maxWaitSeconds": 9}},
}
KEYS = {
    "secretName": "keys",
    "limits": [
        {"name": "a", "requestsPerMinute": 60, "concurrentRequests": 2},
        {"name": "b", "requestsPerMinute": 60},
        {"name": "c", "concurrentRequests": 2},
        {"name": "d", "tokensPerMinute": 9},
    ],
}


def parsed(resource: PDInference, **settings: str) -> dict[str, Any]:
    """The options as the program reads them."""
    command = router_command(resource, "abc", **settings)
    assert command.program == ("pdinference", "router", "run")
    with run_command.make_context("run", list(command.arguments)) as context:
        return context.params


def test_it_watches_the_pods_of_one_revision(resource: Make) -> None:
    found = parsed(resource())
    assert {name: found[name] for name in ("namespace", "name", "revision")} == {
        "namespace": "models",
        "name": "llama",
        "revision": "abc",
    }


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ({}, {"policy": "cache_aware", "when_no_prefill": "Serve", "migration": False}),
        ({"policy": "least_loaded"}, {"policy": "least_loaded"}),
        ({"whenNoPrefill": "Fail"}, {"when_no_prefill": "Fail"}),
        ({"migration": True}, {"migration": True}),
        ({}, {"disaggregation": "Always"}),
        ({"disaggregation": "Adaptive"}, {"disaggregation": "Adaptive"}),
        ({}, {"api_keys_folder": None, "tls_folder": None, "otlp_endpoint": ""}),
    ],
)
def test_it_gets_the_settings_of_the_spec(resource: Make, spec: dict[str, Any], options: dict[str, Any]) -> None:
    assert parsed(resource(router=spec)).items() >= options.items()


def test_it_knows_the_data_parallel_ranks_of_each_role(resource: Make) -> None:
    assert [parsed(resource())[f"{role}_ranks"] for role in ("parameter", "decode")] == [1, 1]
    found = parsed(resource(decode={"parallelism": {"data": 4, "expert": True}}))
    assert [found[f"{role}_ranks"] for role in ("parameter", "decode")] == [1, 4]


def test_it_gets_the_objectives_if_it_has_ways_to_choose_from(resource: Make) -> None:
    objectives = {"ttft": "1500ms", "tpot": "30ms"}
    always, adaptive = (
        parsed(resource(objectives=objectives, router={"disaggregation": mode})) for mode in ("Always", "Adaptive")
    )
    assert (always["ttft_objective"], always["tpot_objective"]) == (math.inf, math.inf)
    assert (adaptive["ttft_objective"], adaptive["tpot_objective"]) == (1.5, 0.03)
    only = parsed(resource(objectives={"ttft": "2s"}, router={"disaggregation": "Adaptive"}))
    assert (only["ttft_objective"], only["tpot_objective"]) == (2, math.inf)


def test_it_knows_how_many_tokens_a_step_has_if_it_predicts_steps(resource: Make) -> None:
    own = {"maxNumBatchedTokens": 1024}
    always, adaptive = (
        parsed(resource(parameter=own, router={"disaggregation": mode})) for mode in ("Always", "Adaptive")
    )
    assert (always["parameter_step_tokens"], always["decode_step_tokens"]) == (512, 512), "unused"
    assert (adaptive["parameter_step_tokens"], adaptive["decode_step_tokens"]) == (1024, 512)


@pytest.mark.parametrize("transfer", [{}, {"verification": "Warn"}, {"verification": "Off"}])
def test_it_verifies_the_transfer_as_the_spec_says(resource: Make, transfer: dict[str, Any]) -> None:
    assert parsed(resource(transfer=transfer))["verification"] == transfer.get("verification", "Required")


def test_requests_wait_as_long_as_scale_to_zero_says(resource: Make) -> None:
    without, scaled = parsed(resource()), parsed(resource(**SLEEPY))
    assert (without["max_queued_requests"], without["max_wait_seconds"]) == (1000, 600)
    assert (scaled["max_queued_requests"], scaled["max_wait_seconds"]) == (7, 9)


def test_it_reads_keys_and_certificate_where_they_are_mounted(resource: Make) -> None:
    found = parsed(resource(router={"apiKeys": KEYS, "tls": {"secretName": "tls"}}))
    assert str(found["api_keys_folder"]) == "/etc/pdinference/api-keys"
    assert str(found["tls_folder"]) == "/etc/pdinference/tls"
    assert found["api_key_limit"] == ("a=60:2", "b=60:", "c=:2", "d=::9")


def test_spans_go_where_the_installation_says(resource: Make) -> None:
    assert parsed(resource(), otlp_endpoint="http://otel:4318")["otlp_endpoint"] == "http://otel:4318"


@pytest.mark.parametrize("place", ["engine", "parameter", "decode"])
def test_arguments_of_logits_processors_pass_where_there_are_some(resource: Make, place: str) -> None:
    assert parsed(resource())["custom_arguments"] is False
    assert parsed(resource(**{place: {"args": {"logits-processors": ["module:Class"]}}}))["custom_arguments"] is True


def test_it_knows_the_model_and_its_adapters(resource: Make) -> None:
    assert parsed(resource())["served_model"] == ("llama",)
    lora = {"adapters": [{"name": "a", "path": "/a"}, {"name": "b", "path": "/b"}]}
    model = {"name": "m", "lora": lora, "maxModelLength": 4096, "source": {"path": "/models"}}
    found = parsed(resource(model=model))
    assert (found["served_model"], found["max_model_length"]) == (("m", "a", "b"), 4096)
