"""A router with API keys and TLS on real parts: clients, and a batch whose runner is killed half way."""

import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from e2e.conftest import NAME, Serving
from e2e.install import apply
from e2e.test_serving import edited, settled
from e2e.transfer import metrics_of
from e2e.volumes import shared_folder
from e2e.waiting import wait_until
from pdinference.api.names import LABEL_BATCH, LABEL_NAME, LABEL_ROLE, ROUTER_STATE_PORT, Role
from pdinference.serving.authority import KeyMaterial, Lifetimes, renewed

pytestmark = pytest.mark.timeout(2400)

COUNT = 20
BATCH = "questions"
CLAIM = "results"


CERTIFICATE = "certificate"
KEYS = "keys"
KEY = "a-key-of-the-team-0123456789"


def secret(name: str, type_: str, **members: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": type_, **members}


@pytest.fixture(scope="module")
def certificate(serving: Serving) -> Iterator[KeyMaterial]:
    """The router has API keys and this certificate."""
    found = renewed(None, ("127.0.0.1",), datetime.now(UTC), Lifetimes(), published=False)
    pair = {name: found.as_secret()[name] for name in ("tls.crt", "tls.key")}
    apply(serving.kubectl, secret(CERTIFICATE, "kubernetes.io/tls", data=pair))
    keys = {"team": KEY, "batch": "a-key-of-batches-0123456789"}
    apply(serving.kubectl, secret(KEYS, "Opaque", stringData=keys))
    settled(serving)
    before = serving.kubectl.get("deployment", f"{NAME}-router")["metadata"]["generation"]
    limits = [{"name": "team", "requestsPerMinute": 5}]
    door = {"apiKeys": {"secretName": KEYS, "limits": limits}, "tls": {"secretName": CERTIFICATE}}
    apply(serving.kubectl, edited(serving, router=door))

    def locked() -> bool:
        router = serving.kubectl.get("deployment", f"{NAME}-router")
        status = router["status"]
        newest = status.get("observedGeneration") == router["metadata"]["generation"] > before
        return bool(
            newest and status["replicas"] == status.get("updatedReplicas") == status.get("availableReplicas") == 1
        )

    wait_until("the router with keys", locked, timeout=240)
    yield found
    apply(serving.kubectl, serving.example)
    settled(serving)


def test_clients_need_a_key_and_get_the_paths_of_the_api_alone(serving: Serving, certificate: KeyMaterial) -> None:
    assert serving.resource()["status"]["url"] == f"https://{NAME}.{serving.kubectl.namespace}.svc"
    body = {"model": NAME, "prompt": "What is the KV cache? " * 20, "max_tokens": 4}
    trust = ssl.create_default_context(cadata=certificate.bundle.decode())
    with serving.kubectl.port_forward(f"service/{NAME}", 443) as url, httpx.Client(verify=trust, timeout=120) as client:
        base = url.replace("http://", "https://")

        def post(path: str = "/v1/completions", key: str = "") -> httpx.Response:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return client.post(base + path, json=body, headers=headers)

        assert post().status_code == post(key="another-key-0123456789").status_code == 401
        answer = post(key=KEY)
        assert (answer.status_code, answer.headers["X-PDInference-Prefill"]) == (200, "parameter")
        assert post("/v1/load_lora_adapter", key=KEY).status_code == 404
        answers = [answer, *(post(key=KEY) for _ in range(6))]
        assert {one.status_code for one in answers} == {200, 429}
    reports = [one.json()["usage"] for one in answers if one.status_code == 200]
    pods = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME},{LABEL_ROLE}={Role.ROUTER}")["items"]
    (router,) = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])
    counted = {
        sample.labels["kind"]: sample.value
        for sample in metrics_of(serving.kubectl, router["metadata"]["name"], ROUTER_STATE_PORT)
        if sample.name == "pdinference_router_client_tokens_total" and sample.labels["client"] == "team"
    }
    assert counted["prompt"] == sum(report["prompt_tokens"] for report in reports) > 0
    assert counted["answer"] == sum(report["completion_tokens"] for report in reports) == 4 * len(reports)


@pytest.fixture
def folder(serving: Serving) -> Iterator[Path]:
    """The folder behind the claim for the answers."""
    with shared_folder(serving.kubectl, CLAIM) as folder:
        yield folder
        serving.kubectl.run("delete", "pdib", BATCH, "--ignore-not-found", "--cascade=foreground")


def questions() -> str:
    """Requests that take long enough to be caught at work."""
    return "\n".join(
        json.dumps(
            {
                "custom_id": f"question-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {
                    "messages": [{"role": "user", "content": f"Question {number}: " + "what is the KV cache? " * 10}],
                    "max_tokens": 128,
                    "ignore_eos": True,
                },
            }
        )
        for number in range(COUNT)
    )


def status(serving: Serving) -> dict[str, Any]:
    found: dict[str, Any] = serving.kubectl.get("pdib", BATCH).get("status", {})
    return found


def runners(serving: Serving) -> list[str]:
    """The pods that work on it: one, whether it has come to its end by now or not."""
    found = serving.kubectl.get("pods", "-l", f"{LABEL_BATCH}={BATCH}")["items"]
    return [pod["metadata"]["name"] for pod in found]


@pytest.mark.usefixtures("certificate")
def test_a_batch_finishes_with_every_answer_although_its_runner_is_killed(serving: Serving, folder: Path) -> None:
    data = {"input.jsonl": questions()}
    apply(serving.kubectl, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": BATCH}, "data": data})
    batch = {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDBatch",
        "metadata": {"name": BATCH},
        "spec": {
            "inferenceRef": {"name": NAME},
            "input": {"configMap": {"name": BATCH, "key": "input.jsonl"}},
            "output": {"persistentVolumeClaim": {"claimName": CLAIM}},
            "concurrency": 1,
        },
    }
    apply(serving.kubectl, batch)
    answered = folder / BATCH / "output.jsonl"
    wait_until("the first answers", lambda: answered.exists() and answered.stat().st_size > 0, timeout=180)
    serving.kubectl.run("delete", "pod", *runners(serving), "--grace-period=0", "--force", "--ignore-not-found")
    serving.kubectl.run("wait", f"pdib/{BATCH}", "--for=condition=Complete", "--timeout=300s", timeout=310)
    answers = [json.loads(line) for line in (folder / BATCH / "output.jsonl").read_text().splitlines()]
    assert sorted(answer["custom_id"] for answer in answers) == sorted(f"question-{n}" for n in range(COUNT))
    for answer in answers:
        assert answer["response"]["status_code"] == 200
        assert answer["response"]["body"]["usage"]["completion_tokens"] == 128
    assert (folder / BATCH / "errors.jsonl").read_text() == ""
    final = status(serving)
    assert (final["completed"], final["failed"], final["total"]) == (COUNT, 0, COUNT)
    assert f"{COUNT}/{COUNT}" in serving.kubectl.run("get", "pdib", BATCH)
