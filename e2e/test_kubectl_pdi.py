"""`kubectl pdi` as a person uses it: kubectl starts the plug-in, which asks the real router and the real vLLM."""

import json
import uuid
from typing import Any

import pytest

from e2e.conftest import NAME, Serving
from e2e.transfer import BLOCK, transfer
from pdinference.api.names import ENGINE_ROLES

pytestmark = pytest.mark.timeout(2400)


def pdi(serving: Serving, command: str, *words: str) -> str:
    return serving.kubectl.pdi(command, NAME, *words)


def pods(serving: Serving) -> set[str]:
    found = serving.kubectl.get("pods", "-l", f"pdinference.io/name={NAME}")["items"]
    return {pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]}


def test_status_names_every_pod(serving: Serving) -> None:
    tree = pdi(serving, "status")
    assert f"{serving.kubectl.namespace}/{NAME}  ready" in tree
    assert all(pod in tree for pod in pods(serving))
    assert json.loads(pdi(serving, "status", "-o", "json"))


def test_chat_shows_what_p_and_d_did(serving: Serving) -> None:
    before = transfer(serving.kubectl, NAME)
    prompt = f"{uuid.uuid4().hex} asks what a KV cache is. ".ljust(3 * BLOCK, "x")
    said: dict[str, Any] = json.loads(pdi(serving, "chat", prompt, "--max-tokens", "8", "-o", "json"))
    moved = transfer(serving.kubectl, NAME) - before
    assert moved.moved_to_decode >= 3 * BLOCK
    assert said["answer"]["text"]
    assert said["stages"]["seconds"].keys() >= {"prefill", "first_token", "tokens"}
    assert {said["routerPod"], said["stages"]["prefill"], said["stages"]["decode"]} <= pods(serving)


def test_bench_measures_every_answer(serving: Serving) -> None:
    load = ("--requests", "6", "--concurrency", "2", "--prompt-tokens", "64", "--answer-tokens", "8")
    found = json.loads(pdi(serving, "bench", *load, "-o", "json"))
    assert (found["answers"], found["errors"], found["answerTokens"]) == (6, {}, 6 * 8)
    ttft = found["latencySeconds"]["ttft"]
    assert 0 < ttft["p50"] <= ttft["p99"] < found["seconds"]


def test_top_has_both_engines(serving: Serving) -> None:
    engines = json.loads(pdi(serving, "top", "-o", "json"))["engines"]
    assert {engine["role"] for engine in engines} == set(ENGINE_ROLES)
    assert all(engine["problem"] == "" and 0 <= engine["kv_used"] <= 1 for engine in engines)
    assert all(engine["prompt_tokens"] > 0 for engine in engines)


@pytest.mark.parametrize("role", ["parameter", "decode", "router"])
def test_logs_are_those_of_the_pods_of_a_role(serving: Serving, role: str) -> None:
    lines = pdi(serving, "logs", role, "--tail", "5").splitlines()
    assert lines
    assert all(any(pod in line for pod in pods(serving)) for line in lines)
