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

from e2e import hub as hub_module
from e2e.conftest import Serving
from e2e.install import apply, remove_at_once
from e2e.requests import complete
from e2e.volumes import USER, shared_folder
from e2e.waiting import conditions, wait_ready, wait_until
from pdinference.api.names import LABEL_NAME, LABEL_ROLE

pytestmark = pytest.mark.timeout(2400)

CLAIM = "models"
REPOSITORY = "tiny/random"
RESOURCES = ("cached", "cached-too", "copied")
FOLDER = f"huggingFace/{REPOSITORY}/{hub_module.COMMIT}"


@dataclass(frozen=True)
class Cache:
    """A claim, and the folder of this machine behind it."""

    serving: Serving
    folder: Path

    def resource(self, name: str, replicas: int = 1) -> dict[str, Any]:
        document = copy.deepcopy(self.serving.example)
        document["metadata"]["name"] = name
        spec = document["spec"]
        spec["model"]["source"] = {"huggingFace": {"repository": REPOSITORY, "revision": hub_module.COMMIT}}
        spec["model"]["cache"] = {"persistentVolumeClaim": {"claimName": CLAIM}}
        spec["engine"]["env"]["HF_ENDPOINT"] = "http://hub"
        spec["parameter"]["replicas"] = spec["decode"]["replicas"] = replicas
        return document

    def found(self, name: str) -> dict[str, Any]:
        resource: dict[str, Any] = self.serving.kubectl.get("pdi", name)
        return resource


@pytest.fixture(scope="module")
def cache(serving: Serving) -> Iterator[Cache]:
    kubectl = serving.kubectl
    with shared_folder(kubectl, CLAIM) as folder:
        for manifest in _hub(serving.images.vllm):
            apply(kubectl, manifest)
        kubectl.run("wait", "pod/hub", "--for=condition=Ready", "--timeout=120s")
        yield Cache(serving, folder)
        remove_at_once(kubectl, *RESOURCES)
        hub = ("pod/hub", "service/hub", "configmap/hub")
        kubectl.run("delete", *hub, "--grace-period=2", "--ignore-not-found", "--wait=false")


def _hub(image: str) -> Iterator[dict[str, Any]]:
    """The hub of e2e/hub.py, with the tiny model of the vLLM image."""
    script = Path(hub_module.__file__).read_text(encoding="utf-8")
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hub"}, "data": {"hub.py": script}}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hub"},
        "spec": {"selector": {"app": "hub"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    yield yaml.safe_load(
        f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: hub, labels: {{app: hub}}}}
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
          volumes: [{{name: hub, configMap: {{name: hub}}}}]
        """
    )


def model_is_ready(cache: Cache, name: str) -> dict[str, Any]:
    def ready() -> dict[str, Any] | None:
        resource = cache.found(name)
        return resource if conditions(resource).get("ModelReady", {}).get("status") == "True" else None

    return wait_until(f"the model of {name}", ready, timeout=180)


def test_p_and_d_serve_a_model_that_a_job_downloaded(cache: Cache) -> None:
    kubectl = cache.serving.kubectl
    apply(kubectl, cache.resource("cached"))
    resource = wait_ready(kubectl, "cached")
    assert conditions(resource)["ModelReady"]["reason"] == "Downloaded"
    assert resource["status"]["model"]["revision"] == hub_module.COMMIT
    assert resource["status"]["model"]["facts"]["config"]["num_hidden_layers"] > 0
    assert (cache.folder / FOLDER / "config.json").is_file()
    with kubectl.port_forward("service/cached", 80) as url:
        assert complete(url, "cached", "Once upon a time", max_tokens=8).completion_tokens == 8


def test_another_resource_uses_what_is_there_without_the_hub(cache: Cache) -> None:
    kubectl = cache.serving.kubectl
    kubectl.run("delete", "pod/hub", "--grace-period=1")
    apply(kubectl, cache.resource("cached-too", replicas=0))
    assert model_is_ready(cache, "cached-too")["status"]["model"]["totalBytes"] > 0


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


def test_what_somebody_copied_wrong_is_told_before_vllm_starts_and_mended_without_the_operator(cache: Cache) -> None:
    kubectl = cache.serving.kubectl
    copied = cache.folder / "copied"
    shutil.copytree(cache.folder / FOLDER, copied)
    for path in (copied, *copied.rglob("*")):
        os.chown(path, USER, USER)
    weights = next(copied.glob("*.safetensors"))
    whole = weights.read_bytes()
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 976\n")
    document = cache.resource("copied")
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
    wait_until("the model to be found whole", lambda: told("True", "nothing wrong"), timeout=120)
