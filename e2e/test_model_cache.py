"""A model is downloaded once into a volume, from a hub in the cluster, and pods serve it from there."""

import copy
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import hub as hugging_face_hub
from e2e import model_scope_site
from e2e.conftest import Serving
from e2e.install import apply, remove_at_once
from e2e.requests import chat
from e2e.transfer import transfer
from e2e.volumes import USER, shared_folder
from e2e.waiting import conditions, wait_ready, wait_until
from pdinference.api.names import LABEL_NAME, LABEL_ROLE
from pdinference.models.manifest import check

pytestmark = pytest.mark.timeout(2400)

CLAIM = "models"
REPOSITORY = "tiny/random"
HUGGING_FACE = {"huggingFace": {"repository": REPOSITORY, "revision": hugging_face_hub.COMMIT}}
MODEL_SCOPE = {"modelScope": {"repository": REPOSITORY, "revision": model_scope_site.REVISION}}
RESOURCES = ("cached", "from-hugging-face", "without-hub", "copied")
FOLDER = f"modelScope/{REPOSITORY}/{model_scope_site.REVISION}"
HUBS = {"hugging-face": Path(hugging_face_hub.__file__), "model-scope": Path(model_scope_site.__file__)}
"""Their programs, by the names of their Services."""


@dataclass(frozen=True)
class Cache:
    """A claim, and the folder of this machine behind it."""

    serving: Serving
    folder: Path

    def resource(self, name: str, source: dict[str, Any], *, hugging_face: str, replicas: int = 1) -> dict[str, Any]:
        """A resource with the claim as cache.

        Args:
            name: Its name.
            source: Where its model comes from.
            hugging_face: The Service that takes requests for Hugging Face.
            replicas: Pods of each role.
        """
        document = copy.deepcopy(self.serving.example)
        document["metadata"]["name"] = name
        spec = document["spec"]
        spec["model"]["source"] = source
        spec["model"]["cache"] = {"persistentVolumeClaim": {"claimName": CLAIM}}
        del spec["model"]["architecture"]  # the Job finds it out
        endpoints = {"HF_ENDPOINT": f"http://{hugging_face}", "MODELSCOPE_ENDPOINT": "http://model-scope"}
        spec["engine"]["env"] |= endpoints
        spec["parameter"]["replicas"] = spec["decode"]["replicas"] = replicas
        return document

    def found(self, name: str) -> dict[str, Any]:
        resource: dict[str, Any] = self.serving.kubectl.get("pdi", name)
        return resource


@pytest.fixture(scope="module")
def cache(serving: Serving) -> Iterator[Cache]:
    kubectl = serving.kubectl
    with shared_folder(kubectl, CLAIM) as folder:
        for name, program in HUBS.items():
            for manifest in _hub(name, program, serving.images.vllm):
                apply(kubectl, manifest)
        kubectl.run("wait", *(f"pod/{name}" for name in HUBS), "--for=condition=Ready", "--timeout=120s")
        yield Cache(serving, folder)
        remove_at_once(kubectl, *RESOURCES)
        hubs = (f"{kind}/{name}" for name in HUBS for kind in ("pod", "service", "configmap"))
        kubectl.run("delete", *hubs, "--grace-period=2", "--ignore-not-found", "--wait=false")


def _hub(name: str, program: Path, image: str) -> Iterator[dict[str, Any]]:
    """A hub that has the tiny model of the vLLM image."""
    script = program.read_text(encoding="utf-8")
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"hub.py": script}}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    yield yaml.safe_load(
        f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: {name}, labels: {{app: {name}}}}}
        spec:
          securityContext:
            {{runAsNonRoot: true, runAsUser: {USER}, seccompProfile: {{type: RuntimeDefault}}}}
          containers:
            - name: hub
              image: {image}
              command: [python3, /hub/hub.py, --folder=/models/tiny, --repository={REPOSITORY}]
              readinessProbe: {{tcpSocket: {{port: 8000}}, periodSeconds: 1}}
              securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
              volumeMounts: [{{name: hub, mountPath: /hub}}]
          volumes: [{{name: hub, configMap: {{name: {name}}}}}]
        """
    )


def model_is_ready(cache: Cache, name: str) -> dict[str, Any]:
    def ready() -> dict[str, Any] | None:
        resource = cache.found(name)
        return resource if conditions(resource).get("ModelReady", {}).get("status") == "True" else None

    return wait_until(f"the model of {name}", ready, timeout=180)


def test_p_and_d_serve_a_model_that_a_job_downloaded(cache: Cache) -> None:
    """From ModelScope; Hugging Face's endpoint is the same site, which so sees each request that should not be."""
    kubectl = cache.serving.kubectl
    apply(kubectl, cache.resource("cached", MODEL_SCOPE, hugging_face="model-scope"))
    resource = wait_ready(kubectl, "cached")
    assert conditions(resource)["ModelReady"]["reason"] == "Downloaded"
    expect_known(cache, resource, FOLDER, model_scope_site.REVISION)
    before = transfer(kubectl, "cached")
    with kubectl.port_forward("service/cached", 80) as url:
        answer = chat(url, "cached", "What is the KV cache? " * 20, max_tokens=8)
    moved = transfer(kubectl, "cached") - before
    assert answer.completion_tokens == 8
    assert moved.computed_on_parameter == answer.prompt_tokens
    assert moved.moved_to_decode == moved.queried_on_decode > 0
    assert moved.bytes > 0
    expect_pinned(kubectl.run("logs", "pod/model-scope").splitlines())


def expect_known(cache: Cache, resource: dict[str, Any], folder: str, revision: str) -> None:
    """Expect what the Job reports of the model, and the whole model in the claim."""
    known = resource["status"]["model"]
    assert known["revision"] == revision
    assert known["facts"]["config"]["num_hidden_layers"] == 4
    manifest = check(cache.folder / folder)  # each file and its size
    assert (manifest.commit, manifest.size) == (revision, known["totalBytes"])


def expect_pinned(requests: list[str]) -> None:
    """Expect that clients asked ModelScope's API only, and for nothing but the pinned revision."""
    model = [request for request in requests if request.startswith(f"/api/v1/models/{REPOSITORY}/repo")]
    assert len(model) > 1
    assert all(f"Revision={model_scope_site.REVISION}" in request for request in model)
    assert {*requests} - {*model} <= {"/api/v1/repos/internalAccelerationInfo"}


def test_another_resource_uses_what_is_there_without_the_hub(cache: Cache) -> None:
    kubectl = cache.serving.kubectl
    apply(kubectl, cache.resource("from-hugging-face", HUGGING_FACE, hugging_face="hugging-face", replicas=0))
    resource = model_is_ready(cache, "from-hugging-face")
    folder = f"huggingFace/{REPOSITORY}/{hugging_face_hub.COMMIT}"
    expect_known(cache, resource, folder, hugging_face_hub.COMMIT)
    kubectl.run("delete", "pod/hugging-face", "pod/model-scope", "--grace-period=1")
    remove_at_once(kubectl, "from-hugging-face")  # the model stays in the claim
    apply(kubectl, cache.resource("without-hub", HUGGING_FACE, hugging_face="hugging-face", replicas=0))
    assert model_is_ready(cache, "without-hub")["status"]["model"]["totalBytes"] > 0


def test_what_is_damaged_later_is_told_before_vllm_starts(cache: Cache) -> None:
    kubectl = cache.serving.kubectl
    weights = next((cache.folder / FOLDER).glob("*.safetensors"))
    whole = weights.read_bytes()
    weights.write_bytes(b"short")
    kubectl.run("delete", "pod", "-l", f"{LABEL_NAME}=cached,{LABEL_ROLE}=decode", "--wait=false")

    def told() -> bool:
        message = conditions(cache.found("cached"))["DecodeReady"]["message"]
        return f"{weights.name} has 5 bytes instead of" in message

    wait_until("the damage to be told", told, timeout=180)
    weights.write_bytes(whole)


def test_a_wrongly_copied_model_is_reported_before_vllm_starts(cache: Cache) -> None:
    kubectl = cache.serving.kubectl
    copied = cache.folder / "copied"
    shutil.copytree(cache.folder / FOLDER, copied)
    for path in (copied, *copied.rglob("*")):
        os.chown(path, USER, USER)
    weights = next(copied.glob("*.safetensors"))
    whole = weights.read_bytes()
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 976\n")
    document = cache.resource("copied", MODEL_SCOPE, hugging_face="hugging-face")
    document["spec"]["model"] = {
        **cache.serving.example["spec"]["model"],
        "source": {"persistentVolumeClaim": {"claimName": CLAIM, "path": "copied"}},
    }
    document["spec"]["parameter"]["replicas"] = 0
    apply(kubectl, document)

    def told(status: str, text: str) -> bool:
        found = conditions(cache.found("copied")).get("ModelReady", {"status": "", "message": ""})
        return found["status"] == status and text in found["message"]

    pointer = f"has no model to load: /models/copied/{weights.name} is a Git LFS pointer"
    wait_until("the pointer to be told", lambda: told("False", pointer), timeout=120)
    weights.write_bytes(whole)
    wait_until("the model to be found whole", lambda: told("True", "found it complete"), timeout=120)
