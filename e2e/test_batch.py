"""Offline work on real parts: a batch through the router of the tiny model, its runner killed half way."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import NAME, Serving
from e2e.install import apply
from e2e.volumes import shared_folder
from e2e.waiting import wait_until
from pdinference.api.names import LABEL_BATCH

pytestmark = pytest.mark.timeout(2400)

COUNT = 20
BATCH = "questions"
CLAIM = "results"


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
