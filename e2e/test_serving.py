"""The main job on real parts: requests are answered through P and D, whatever happens to the operator.

The tests share one deployment and leave it as they found it; later ones build on what earlier ones proved.
"""

import copy
import json
import uuid
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e import damaging_plugin
from e2e.conftest import NAME, Serving
from e2e.console import say
from e2e.faults import kill, kill_operators
from e2e.install import OPERATOR_NAMESPACE, RELEASE, apply, install_operator
from e2e.kubectl import KubectlError
from e2e.load import load
from e2e.requests import chat, complete, load_adapter, unseen_prompt
from e2e.transfer import BLOCK, transfer
from e2e.waiting import conditions, wait_ready, wait_until
from pdinference.api.names import (
    ENGINE_CONTAINER,
    ENGINE_PORT,
    ENGINE_ROLES,
    LABEL_NAME,
    LABEL_REVISION,
    LABEL_ROLE,
    METRIC_VERIFICATION,
    METRIC_VERIFICATION_DISTANCE,
    METRIC_VERIFICATION_LIMIT,
    ROUTER_STATE_PORT,
    Role,
    Verification,
)

pytestmark = pytest.mark.timeout(2400)


def settled(serving: Serving, revision_differs_from: str | None = None) -> dict[str, Any]:
    """Wait until the resource is rolled out and only one revision is left."""

    def rolled_out() -> dict[str, Any] | None:
        resource = serving.resource()
        status = resource["status"]
        done = (
            status["observedGeneration"] == resource["metadata"]["generation"]
            and status["servingRevision"] == status["revision"] != revision_differs_from
            and conditions(resource)["Progressing"]["reason"] == "RolloutComplete"
            and revisions(serving) == {status["revision"]}
        )
        return resource if done else None

    return wait_until("the roll-out to be complete", rolled_out, timeout=300)


def revisions(serving: Serving) -> set[str]:
    """Revisions of which P or D workloads exist."""
    workloads = serving.kubectl.get("statefulsets,deployments", "-l", f"{LABEL_NAME}={NAME},{LABEL_ROLE}!=router")
    return {workload["metadata"]["labels"][LABEL_REVISION] for workload in workloads["items"]}


def pods(serving: Serving) -> dict[str, dict[str, Any]]:
    """The pods that are to stay, by UID; those of an old revision may still be on their way out."""
    found = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME}")["items"]
    return {pod["metadata"]["uid"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def edited(serving: Serving, **spec: Any) -> dict[str, Any]:
    document = copy.deepcopy(serving.example)
    for field, value in spec.items():
        document["spec"].setdefault(field, {}).update(value)
    return document


def test_a_chat_completion_is_answered_and_its_kv_cache_moved_from_p_to_d(serving: Serving) -> None:
    before = transfer(serving.kubectl, NAME)
    never_seen = uuid.uuid4().hex  # in front, so that nothing comes from a prefix cache
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        answer = chat(url, NAME, f"{never_seen} What is the KV cache? " * 20, max_tokens=16)
    moved = transfer(serving.kubectl, NAME) - before
    assert answer.completion_tokens == 16
    # A canary may go beside it, whose first request has one token.
    assert moved.computed_on_parameter >= answer.prompt_tokens
    assert moved.moved_to_decode >= answer.prompt_tokens > 0
    assert moved.queried_on_decode - moved.moved_to_decode < BLOCK
    assert moved.computed_on_decode < BLOCK, "D computes at most what does not fill a block"
    assert moved.bytes > 0
    assert moved.failed == 0


def test_the_router_tried_the_transfer_before_requests_came(serving: Serving) -> None:
    def routers() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME},{LABEL_ROLE}=router")[
            "items"
        ]
        return found

    # One that an earlier test had beside it ends when its requests have.
    wait_until("a router pod alone", lambda: len(routers()) == 1, timeout=240)
    (router,) = routers()
    state, value = "", dict[str, float]()

    def verified() -> bool:
        nonlocal state, value
        found = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).raise_for_status().text
        samples = [one for family in text_string_to_metric_families(found) for one in family.samples]
        (state,) = (one.labels["state"] for one in samples if one.name == METRIC_VERIFICATION and one.value)
        value = {one.name: one.value for one in samples if not one.labels}
        return state == Verification.VERIFIED

    with serving.kubectl.port_forward(f"pod/{router['metadata']['name']}", ROUTER_STATE_PORT) as url:
        # A pair that had a fault in an earlier test is tried again within a minute.
        wait_until("a canary without a fault", verified, timeout=180)
    say(f"{state}: {value[METRIC_VERIFICATION_DISTANCE]:.3g}, limit {value[METRIC_VERIFICATION_LIMIT]:.3g}")
    assert value[METRIC_VERIFICATION_DISTANCE] < value[METRIC_VERIFICATION_LIMIT]


def test_the_status_has_what_vllm_measured_beside_what_was_planned(serving: Serving) -> None:
    def told() -> dict[str, Any] | None:
        plan = serving.resource()["status"].get("plan", {})
        both = [plan.get(role, {}) for role in ENGINE_ROLES]
        return plan if all("observedKvCapacityTokens" in role for role in both) else None

    # Pods that are not autoscaled are asked once a minute until they have told.
    plan = wait_until("both roles to tell the size of their KV cache", told, timeout=180)
    for role in ENGINE_ROLES:
        assert plan[role]["observedKvCapacityTokens"] == plan[role]["kvCapacityTokens"] > 0
        assert plan[role]["kvCapacityErrorPercent"] == 0
    assert conditions(serving.resource())["MemoryFits"]["status"] == "True"


def test_the_pair_is_calm(serving: Serving) -> None:
    """Twenty warm requests, none of which waits for a spinning core. The bound is far from what a request takes."""
    before = transfer(serving.kubectl, NAME)
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        answers = [complete(url, NAME, f"{number} " * 300, max_tokens=16) for number in range(20)]
    moved = transfer(serving.kubectl, NAME) - before
    assert max(answer.seconds for answer in answers) < 60
    assert moved.transfers == 20
    assert moved.failed == 0


def test_p_and_d_are_scheduled_and_meet_the_restricted_standard(serving: Serving) -> None:
    found = pods(serving).values()
    assert {pod["metadata"]["labels"][LABEL_ROLE] for pod in found} == {"parameter", "decode", "router"}
    assert all(pod["spec"]["nodeName"] for pod in found)
    namespace = serving.kubectl.get("namespace", serving.kubectl.namespace)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_an_edit_moves_traffic_to_a_new_pair_and_no_request_fails(serving: Serving) -> None:
    """The edit adds a chat template and a LoRA adapter, both of which must take effect; another is loaded later.

    From then on each request goes its own way, and has the same text.

    Meanwhile the old P pod is killed.
    """
    old = settled(serving)["status"]["revision"]
    (parameter,) = (pod for pod in pods(serving).values() if pod["metadata"]["labels"][LABEL_ROLE] == Role.PARAMETER)
    template = {"inline": "{% for message in messages %}[{{ message.content }}]{% endfor %}"}
    lora: dict[str, Any] = {
        "adapters": [{"name": "tiny-lora", "path": "/models/tiny-lora"}],
        "maxRank": 8,
        "maxActive": 2,
    }
    lora["dynamicLoading"] = True
    with load(serving.kubectl, serving.url, NAME, serving.images.operator) as client:
        model, router = {"chatTemplate": template, "lora": lora}, {"disaggregation": "Adaptive"}
        apply(serving.kubectl, edited(serving, model=model, router=router))
        wait_until("a second revision", lambda: len(revisions(serving)) > 1, timeout=120)
        kill(serving.cluster, parameter)
        settled(serving, revision_differs_from=old)
        client.wait_for(more=10)
        assert client.unanswered() == []

    assert transfer(serving.kubectl, NAME).moved_to_decode > 0
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        assert chat(url, NAME, "Hello").prompt_tokens == len("[Hello]")
        prompt = "The same prompt for both. " * 10
        base, adapted = (complete(url, model, prompt, max_tokens=16) for model in (NAME, "tiny-lora"))
    assert base.text != adapted.text
    expect_a_conversation_to_stay(serving)
    ways = json.loads(serving.kubectl.pdi("status", NAME, "-o", "json"))["ways"]
    assert sum(ways["requests"].values()) >= 10
    assert 0 < ways["cached_tokens"] < ways["prompt_tokens"]
    assert late_adapter(serving, prompt) == adapted.text


def expect_a_conversation_to_stay(serving: Serving) -> None:
    """One pod answers the second turn from the KV cache that it has of the first. The text is that of a computed one.

    P computed the first one, D has its KV cache: without other load either may be faster.
    """
    question = {"role": "user", "content": unseen_prompt(40)}
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        first, _ = turn(url, [question])
        more = [question, {"role": "assistant", "content": first}, {"role": "user", "content": "Again."}]
        text, answer = turn(url, more)
        assert answer.headers["X-PDInference-Way"] in {"decode", "parameter"}
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > len(question["content"]) / 2
        edited_turn = [question, {"role": "assistant", "content": "Something else."}, more[2]]
        assert turn(url, more, cache_salt="a")[0] == text
        assert turn(url, edited_turn)[0] == turn(url, edited_turn, cache_salt="b")[0]


def turn(url: str, messages: list[dict[str, str]], **members: str) -> tuple[str, httpx.Response]:
    """The text of an answer to a conversation, and its response."""
    body = {"model": NAME, "messages": messages, "max_tokens": 16, "temperature": 0, **members}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).raise_for_status()
    return answer.json()["choices"][0]["message"]["content"], answer


def late_adapter(serving: Serving, prompt: str) -> str:
    """Load an adapter into the running engines, as docs/models.md says, and ask it; no pod is replaced."""
    before = pods(serving)
    for pod in before.values():
        if pod["metadata"]["labels"][LABEL_ROLE] in ENGINE_ROLES:
            with serving.kubectl.port_forward(f"pod/{pod['metadata']['name']}", ENGINE_PORT) as url:
                load_adapter(url, "late", "/models/tiny-lora")
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        answer = complete(url, "late", prompt, max_tokens=16)
    assert pods(serving).keys() == before.keys()
    return answer.text


def test_a_bad_edit_changes_nothing_for_clients_and_says_what_is_wrong(serving: Serving) -> None:
    good = settled(serving)["status"]["revision"]
    with load(serving.kubectl, serving.url, NAME, serving.images.operator) as client:
        apply(serving.kubectl, edited(serving, engine={"image": "localhost/pdinference/no-such-image:1"}))

        def complains() -> bool:
            stalled = conditions(serving.resource()).get("Stalled", {"message": ""})
            return "no-such-image" in stalled["message"]

        wait_until("the roll-out to be stalled by the image", complains, timeout=120)
        seen = serving.resource()
        assert conditions(seen)["Progressing"]["status"] == "False"
        assert conditions(seen)["Progressing"]["reason"] in {"ImagePullBackOff", "ErrImageNeverPull"}
        assert conditions(seen)["Ready"]["status"] == "True"
        assert seen["status"]["servingRevision"] == good
        assert f"Revision {good} keeps answering" in conditions(seen)["Progressing"]["message"]
        client.wait_for(more=10)

        apply(serving.kubectl, serving.example)
        settled(serving)
        client.wait_for(more=5)
        assert client.unanswered() == []


def test_a_revision_whose_kv_cache_arrives_damaged_gets_no_request(serving: Serving) -> None:
    """D's vLLM zeroes what it receives. Its answers have status 200, and its counters are those of a right transfer."""
    good = settled(serving)["status"]["revision"]
    keys = {f"file-{number}": path for number, path in enumerate(damaging_plugin.FILES)}
    data = {key: damaging_plugin.FILES[path] for key, path in keys.items()}
    apply(serving.kubectl, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "damage"}, "data": data})
    files = {"name": "damage", "items": [{"key": key, "path": path} for key, path in keys.items()]}
    vllm = {
        "name": ENGINE_CONTAINER,
        "env": [{"name": "PYTHONPATH", "value": "/damage"}],
        "volumeMounts": [{"name": "damage", "mountPath": "/damage"}],
    }
    overlay = {"spec": {"containers": [vllm], "volumes": [{"name": "damage", "configMap": files}]}}
    with load(serving.kubectl, serving.url, NAME, serving.images.operator) as client:
        apply(serving.kubectl, edited(serving, decode={"podTemplate": overlay}))

        def found() -> str | None:
            condition = conditions(serving.resource()).get("KVTransfer", {})
            return condition["message"] if condition.get("reason") == "WrongAnswers" else None

        message = wait_until("the damage to be found", found, timeout=300)
        say(message)
        seen = serving.resource()
        new = seen["status"]["revision"]
        assert new != good
        assert f"of revision {new} " in message
        assert "limit 0.15" in message
        assert seen["status"]["servingRevision"] == good
        assert conditions(seen)["Ready"]["status"] == "True"
        client.wait_for(more=10)

        apply(serving.kubectl, serving.example)
        settled(serving)
        client.wait_for(more=5)
        assert client.unanswered() == []


def test_an_edit_that_the_api_server_refuses_names_the_field(serving: Serving) -> None:
    generation = serving.resource()["metadata"]["generation"]
    with pytest.raises(KubectlError, match=r"spec\.decode\.replicas"):
        apply(serving.kubectl, edited(serving, decode={"replicas": -1}))
    assert serving.resource()["metadata"]["generation"] == generation


def test_requests_survive_faults_of_the_operator_and_the_api_server(serving: Serving) -> None:
    before = pods(serving)
    with load(serving.kubectl, serving.url, NAME, serving.images.operator) as client:
        assert kill_operators(serving.cluster)
        client.wait_for(more=5)
        serving.cluster.stop_component("kube-apiserver", kill=True)
        serving.cluster.start_component("kube-apiserver")
        install_operator(serving.kubectl, serving.images, "workers=4")
        wait_ready(serving.kubectl, NAME)
        client.wait_for(more=10)
        assert client.unanswered() == []
    after = pods(serving)
    assert after.keys() == before.keys()
    assert sum(pod["status"]["containerStatuses"][0]["restartCount"] for pod in after.values()) == 0


def test_what_is_deleted_or_edited_by_hand_comes_back(serving: Serving) -> None:
    serving.kubectl.run("delete", "service,networkpolicy,poddisruptionbudget", "-l", f"{LABEL_NAME}={NAME}")
    serving.kubectl.run("patch", "deployment", f"{NAME}-router", "-p", '{"spec":{"replicas":3}}')

    def back() -> bool:
        found = serving.kubectl.get("services,networkpolicies,poddisruptionbudgets", "-l", f"{LABEL_NAME}={NAME}")
        router = serving.kubectl.get("deployment", f"{NAME}-router")
        return len(found["items"]) == 8 and router["spec"]["replicas"] == 1

    wait_until("all children to be back", back)
    wait_ready(serving.kubectl, NAME)


def test_helm_upgrade_and_uninstall_leave_running_models_alone(serving: Serving) -> None:
    before = pods(serving).keys()
    serving.kubectl.command("helm", "uninstall", RELEASE, "-n", OPERATOR_NAMESPACE, "--wait", timeout=180)
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        assert chat(url, NAME, "Hello", max_tokens=4).completion_tokens == 4
    install_operator(serving.kubectl, serving.images)
    wait_ready(serving.kubectl, NAME)
    assert pods(serving).keys() == before
