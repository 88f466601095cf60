"""A mixture of experts on two nodes: P has two data-parallel ranks on each of them, D has one; experts are spread.

The router is told of each rank, chooses among them, and proves each of D's with a canary.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from e2e.conftest import Serving
from e2e.faults import kill_rank, restarts
from e2e.nodes import HOSTNAME, errors_of_decode, hosts, pods, served
from e2e.requests import unseen_prompt
from e2e.transfer import BLOCK, Transfer, metrics_of, transfer
from e2e.waiting import wait_ready, wait_until
from pdinference.api.names import (
    ENGINE_PORT,
    ENGINE_ROLES,
    LABEL_APP_COMPONENT,
    LABEL_NAME,
    LABEL_ROLE,
    METRIC_PAIR_FAULTS,
    ROUTER_STATE_PORT,
    Role,
)

pytestmark = pytest.mark.timeout(2400)

EXPERTS = "experts"
ANSWER = 12
RANKS = {Role.PARAMETER: 4, Role.DECODE: 2}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_APART = {
    "topologyKey": HOSTNAME,
    "labelSelector": {"matchLabels": {LABEL_NAME: EXPERTS, LABEL_APP_COMPONENT: str(Role.DECODE)}},
}
"""The two pods of D would fit one node of the cluster."""
SHAPE = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 259,
}
"""As in images/vllm-cpu/tiny_model.py."""
_ALONE = """
import json, sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("/models/tiny-experts", dtype=torch.float32)
for prompt in json.loads(sys.argv[1]):
    ids = torch.tensor([prompt])
    length = int(sys.argv[2])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, min_new_tokens=length,
                           do_sample=False)
    print("TOKENS", json.dumps(found[0, len(prompt):].tolist()))
"""


@pytest.fixture(scope="module")
def experts(serving: Serving) -> Iterator[Serving]:
    p, d = ({"data": ranks, "nodes": 2, "expert": True} for ranks in RANKS.values())
    decode = {"parallelism": d, "podTemplate": {"spec": {"affinity": {"podAntiAffinity": {REQUIRED: [_APART]}}}}}
    model = {"source": {"path": "/models/tiny-experts"}, "architecture": {"config": SHAPE}}
    with served(serving, EXPERTS, p, decode=decode, model=model) as it:
        yield it


def asked(experts: Serving, texts: list[str]) -> tuple[list[dict[str, Any]], Transfer]:
    """The choices for prompts that are sent at once, with their tokens, and what moved for them."""
    before = transfer(experts.kubectl, EXPERTS)
    with experts.kubectl.port_forward(f"service/{EXPERTS}", 80) as url, ThreadPoolExecutor(len(texts)) as clients:

        def choice(text: str) -> dict[str, Any]:
            body = {"model": EXPERTS, "prompt": text, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True}
            body |= {"return_token_ids": True}
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=420, trust_env=False).raise_for_status()
            found: dict[str, Any] = answer.json()["choices"][0]
            return found

        return list(clients.map(choice, texts)), transfer(experts.kubectl, EXPERTS) - before


def alone(experts: Serving, prompts: list[list[int]]) -> list[list[int]]:
    """The answers of the whole model in one process, by Transformers."""
    pod = pods(experts, EXPERTS, Role.DECODE)[0]
    words = ["exec", pod["metadata"]["name"], "-c", "vllm", "--", "python3", "-c", _ALONE]
    said = experts.kubectl.run(*words, json.dumps(prompts), str(ANSWER), timeout=300)
    return [json.loads(line.removeprefix("TOKENS")) for line in said.splitlines() if line.startswith("TOKENS")]


def by_rank(experts: Serving, role: Role, name: str) -> dict[str, float]:
    """What each rank of an instance has counted, as the first node says."""
    first = pods(experts, EXPERTS, role)[0]["metadata"]["name"]
    found = metrics_of(experts.kubectl, first, ENGINE_PORT)
    return {sample.labels["engine"]: sample.value for sample in found if sample.name == name}


def said_by_router(experts: Serving) -> str:
    """What the router's log says besides its line for each answered request."""
    said = experts.kubectl.run("logs", "-l", f"{LABEL_NAME}={EXPERTS},{LABEL_ROLE}={Role.ROUTER}", "--tail=-1")
    return "\n".join(line for line in said.splitlines() if '"retries":0' not in line)


def requests_by_rank(experts: Serving) -> list[dict[str, float]]:
    """The requests that each rank of P and of D has had."""
    return [by_rank(experts, role, "vllm:request_prompt_tokens_count") for role in ENGINE_ROLES]


def test_ranks_on_both_nodes_hand_their_kv_cache_over_and_the_tokens_are_those_of_one_process(
    experts: Serving,
) -> None:
    assert [pod["spec"]["nodeName"] for pod in pods(experts, EXPERTS)] == hosts(experts)
    assert {pod["spec"]["nodeName"] for pod in pods(experts, EXPERTS, Role.DECODE)} == {*hosts(experts)}
    # Each rank of D greets each rank of P first. On two cores that may take longer than vLLM waits for it, or than the
    # router waits for the KV cache of a D that takes no step (router/lease.py). Then D computes the prompt.
    for _ in range(6):
        texts, before = [unseen_prompt(9) for _ in range(12)], requests_by_rank(experts)
        choices, moved = asked(experts, texts)
        if not moved.failed and moved.moved_to_decode == moved.queried_on_decode:
            break
    at_p, at_d = (
        {rank: now[rank] - then[rank] for rank in now}
        for now, then in zip(requests_by_rank(experts), before, strict=True)
    )
    assert (len(at_p), len(at_d)) == tuple(RANKS.values())
    # Evenly, but for canaries, and for prompts that P had computed before others came.
    assert min(at_p.values()) >= 2, at_p
    assert min(at_d.values()) >= 4, at_d
    assert moved.failed == 0, errors_of_decode(experts, EXPERTS)
    assert moved.moved_to_decode == moved.queried_on_decode > 0, said_by_router(experts)
    assert moved.computed_on_decode < BLOCK * len(texts)
    assert [one["token_ids"] for one in choices] == alone(experts, [one["prompt_token_ids"] for one in choices])


def test_each_rank_of_d_has_passed_a_canary(experts: Serving) -> None:
    (router,) = experts.kubectl.get("pods", "-l", f"{LABEL_NAME}={EXPERTS},{LABEL_ROLE}={Role.ROUTER}")["items"]
    decode = pods(experts, EXPERTS, Role.DECODE)[0]["metadata"]["name"]
    expected = {f"{decode}/rank-{rank}": 0 for rank in range(RANKS[Role.DECODE])}

    def found() -> dict[str, float]:
        samples = metrics_of(experts.kubectl, router["metadata"]["name"], ROUTER_STATE_PORT)
        return {sample.labels["decode"]: sample.value for sample in samples if sample.name == METRIC_PAIR_FAULTS}

    # Canaries are sent again to pods that were not ready for a moment.
    wait_until("each rank of D to have passed a canary", lambda: found() == expected, timeout=180)


def test_the_status_compares_what_a_rank_has_with_the_plan(experts: Serving) -> None:
    """The KV cache of CPU pods is 1 GiB for each rank, in whole blocks."""

    def error() -> float | None:
        plan = experts.kubectl.get("pdi", EXPERTS)["status"]["plan"]["parameter"]
        found: float | None = plan.get("kvCapacityErrorPercent")
        return found

    wait_until("a pod to report its KV cache", lambda: error() is not None, timeout=120)
    found = error()
    assert found is not None
    assert abs(found) < 5


def test_a_request_waits_while_p_drains_and_a_rank_of_d_is_killed(experts: Serving) -> None:
    (p_first, p_second), (d_first, d_second) = (pods(experts, EXPERTS, role) for role in ENGINE_ROLES)
    kill_rank(experts.cluster, d_second)
    experts.kubectl.run("delete", "pod", p_first["metadata"]["name"], "--wait=false")

    def formed_anew() -> bool:
        found = [pods(experts, EXPERTS, role) for role in ENGINE_ROLES]
        if any(len(of_role) != 2 or not all(map(_is_ready, of_role)) for of_role in found):
            return False
        (p, _), d = found
        replaced: bool = p["metadata"]["uid"] != p_first["metadata"]["uid"]
        return replaced and all(restarts(pod) for pod in d)

    with ThreadPoolExecutor(1) as client:
        waiting = client.submit(asked, experts, [unseen_prompt(9)])
        wait_until("all nodes to be together again", formed_anew, timeout=420)
        ((one,), _) = waiting.result(timeout=300)
    assert [pod["metadata"]["uid"] for pod in pods(experts, EXPERTS, Role.DECODE)] == [
        pod["metadata"]["uid"] for pod in (d_first, d_second)
    ]
    earlier = experts.kubectl.run("logs", p_second["metadata"]["name"], "-c", "vllm", "--previous")
    assert "node 0 has drained" in earlier, earlier[-2000:]
    assert [one["token_ids"]] == alone(experts, [one["prompt_token_ids"]])
    wait_ready(experts.kubectl, EXPERTS)
    choices, _ = asked(experts, [unseen_prompt(9) for _ in range(4)])
    assert [one["token_ids"] for one in choices] == alone(experts, [one["prompt_token_ids"] for one in choices])


def _is_ready(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses") or ()
    return bool(statuses) and all(status["ready"] for status in statuses)
