"""P and D stream their weights from a bucket of a real server with the API of S3, and a Job downloads from it."""

import copy
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.cluster.build import binary
from e2e.conftest import NAME, Serving
from e2e.install import apply, remove_at_once
from e2e.requests import complete
from e2e.transfer import transfer
from e2e.volumes import USER, shared_folder
from e2e.waiting import conditions, wait_ready, wait_until
from pdinference.models.manifest import check

pytestmark = pytest.mark.timeout(1200)

SERVER = "buckets"
TOOLS = "bucket-tools"
CLAIM = "bucket-models"
KEY = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "not-a-secret-of-anyone"}
SOURCE = {"uri": "s3://models/team/tiny", "endpoint": f"http://{SERVER}:7070", "secretName": SERVER}
RESOURCES = ("streamed", "downloaded", "refused")
PROMPT = "What is the KV cache? " * 20
UPLOAD = """
import boto3, pathlib
client = boto3.client("s3", endpoint_url="http://127.0.0.1:7070", region_name="us-east-1")
client.create_bucket(Bucket="models")
for file in sorted(pathlib.Path("/models/tiny").iterdir()):
    if file.is_file():
        client.upload_file(str(file), "models", f"team/tiny/{file.name}")
"""


def server(image: str) -> Iterator[dict[str, Any]]:
    """The server, and the Secret of its readers."""
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SERVER}, "stringData": KEY}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVER},
        "spec": {"selector": {"app": SERVER}, "ports": [{"port": 7070}]},
    }
    yield yaml.safe_load(
        f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: {SERVER}, labels: {{app: {SERVER}}}}}
        spec:
          securityContext: {{runAsNonRoot: true, runAsUser: {USER}, seccompProfile: {{type: RuntimeDefault}}}}
          containers:
            - name: server
              image: {image}
              command: [/tools/versitygw, --port, ":7070", posix, /buckets]
              env:
                - {{name: ROOT_ACCESS_KEY, value: {KEY["AWS_ACCESS_KEY_ID"]}}}
                - {{name: ROOT_SECRET_KEY, value: {KEY["AWS_SECRET_ACCESS_KEY"]}}}
              envFrom: [{{secretRef: {{name: {SERVER}}}}}] # for the upload
              readinessProbe: {{tcpSocket: {{port: 7070}}, periodSeconds: 1}}
              securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
              volumeMounts:
                - {{name: tools, mountPath: /tools, readOnly: true}}
                - {{name: buckets, mountPath: /buckets}}
          volumes:
            - {{name: tools, persistentVolumeClaim: {{claimName: {TOOLS}}}}}
            - {{name: buckets, emptyDir: {{}}}}
        """
    )


@pytest.fixture(scope="module")
def buckets(serving: Serving) -> Iterator[Serving]:
    """A bucket with the tiny model."""
    kubectl = serving.kubectl
    with shared_folder(kubectl, TOOLS) as tools:
        shutil.copy(binary("versitygw"), tools)
        for manifest in server(serving.images.vllm):
            apply(kubectl, manifest)
        kubectl.run("wait", f"pod/{SERVER}", "--for=condition=Ready", "--timeout=120s")
        kubectl.run("exec", SERVER, "--", "python3", "-c", UPLOAD)
        yield serving
        remove_at_once(kubectl, *RESOURCES)
        kubectl.run("delete", *(f"{kind}/{SERVER}" for kind in ("pod", "service", "secret")), "--grace-period=1")


def resource(serving: Serving, name: str, model: dict[str, Any], replicas: int = 1) -> dict[str, Any]:
    document = copy.deepcopy(serving.example)
    document["metadata"]["name"] = name
    spec = document["spec"]
    spec["model"] = {**spec["model"], "source": {"bucket": SOURCE}, **model}
    del spec["model"]["architecture"]  # the Job finds it out
    spec["parameter"]["replicas"] = spec["decode"]["replicas"] = replicas
    return document


def test_p_and_d_stream_from_a_bucket_and_move_kv_cache(buckets: Serving) -> None:
    """The Job reads config.json and the headers by range requests; what P and D load is the same model."""
    kubectl = buckets.kubectl
    streaming = {"inspect": True, "load": {"concurrency": 2, "memoryLimit": "1Gi"}}
    apply(kubectl, resource(buckets, "streamed", streaming))
    found = wait_ready(kubectl, "streamed")
    facts = found["status"]["model"]["facts"]
    assert facts["config"]["num_hidden_layers"] == 4
    assert facts["checkpoint"]["elements"] > 1_000_000
    before = transfer(kubectl, "streamed")
    with kubectl.port_forward("service/streamed", 80) as url:
        answer = complete(url, "streamed", PROMPT, max_tokens=8)
    moved = transfer(kubectl, "streamed") - before
    assert moved.moved_to_decode == moved.queried_on_decode > 0
    with kubectl.port_forward(f"service/{NAME}", 80) as url:
        assert complete(url, NAME, PROMPT, max_tokens=8).text == answer.text
    remove_at_once(kubectl, "streamed")


def test_a_job_downloads_from_a_bucket(buckets: Serving) -> None:
    kubectl = buckets.kubectl
    with shared_folder(kubectl, CLAIM) as folder:
        cache = {"persistentVolumeClaim": {"claimName": CLAIM}}
        apply(kubectl, resource(buckets, "downloaded", {"cache": cache}, replicas=0))

        def ready() -> dict[str, Any] | None:
            found: dict[str, Any] = kubectl.get("pdi", "downloaded")
            return found if conditions(found).get("ModelReady", {}).get("status") == "True" else None

        found = wait_until("the model of downloaded", ready, timeout=180)
        (model,) = (folder / "bucket").glob("tiny-*[0-9a-f]")
        manifest = check(model)
        assert (manifest.commit, manifest.size) == (
            found["status"]["model"]["revision"],
            found["status"]["model"]["totalBytes"],
        )
        remove_at_once(kubectl, "downloaded")


def test_a_wrong_key_is_told(buckets: Serving) -> None:
    kubectl = buckets.kubectl
    wrong = {name: "wrong" if name == "AWS_SECRET_ACCESS_KEY" else value for name, value in KEY.items()}
    apply(kubectl, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong-key"}, "stringData": wrong})
    document = resource(buckets, "refused", {"inspect": True}, replicas=0)
    document["spec"]["model"]["source"] = {"bucket": {**SOURCE, "secretName": "wrong-key"}}
    apply(kubectl, document)

    def told() -> bool:
        found = conditions(kubectl.get("pdi", "refused"))
        return "check the key in the Secret" in found.get("ModelReady", {}).get("message", "")

    wait_until("the wrong key to be told", told, timeout=180)
    remove_at_once(kubectl, "refused")
    kubectl.run("delete", "secret/wrong-key")
