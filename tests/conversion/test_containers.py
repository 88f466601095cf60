"""vLLM in docker, in a compose file and in manifests."""

from typing import Any

import pytest
import yaml

from pdinference.api.validation import validated
from pdinference.checks import examine
from pdinference.conversion import (
    Conversion,
    ConversionError,
    convert,
    starts_in_documents,
    starts_in_script,
    starts_in_words,
)
from pdinference.manifests import RenderSettings

DOCKER = """
docker run -dit --rm --runtime nvidia --gpus '"device=0,1"' \\
  -v ~/.cache/huggingface:/root/.cache/huggingface -v/data/models:/models:ro \\
  -e VLLM_WORKER_MULTIPROC_METHOD=spawn --env "HUGGING_FACE_HUB_TOKEN=$HF_TOKEN" -e NCCL_DEBUG \\
  -p 127.0.0.1:8018:8000 --ipc=host --name chat \\
  vllm/vllm-openai:v0.6.3 --model /models/baichuan-7b --tensor-parallel-size 2
"""
COMPOSE = """
services:
  vllm:
    image: vllm/vllm-openai:v0.33.0
    command: --model Qwen/Qwen2.5-7B-Instruct-AWQ --max-model-len 8192
    environment:
      - HF_TOKEN=${HF_TOKEN}
      - NCCL_DEBUG=INFO
    ports: [{published: 8018, target: 8000}]
    volumes: ["hub:/root/.cache/huggingface"]
    ipc: host
  web:
    image: nginx
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: mistral-7b, namespace: llms}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: mistral, tier: web}}
    spec:
      serviceAccountName: serving
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB, zone: a}
      tolerations: [{key: gpu, operator: Exists}]
      priorityClassName: high
      volumes:
        - {name: models, persistentVolumeClaim: {claimName: models}}
        - {name: shm, emptyDir: {medium: Memory}}
      containers:
        - name: vllm
          image: registry.example/vllm:0.32
          command: [python3, -m, vllm.entrypoints.openai.api_server]
          args: [--model, /models/mistral/7b, --tensor-parallel-size, "2", --max-model-len, $(MAX_LENGTH)]
          env:
            - {name: MAX_LENGTH, value: "4096"}
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
            - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
          resources:
            requests: {cpu: 2, memory: 6G, nvidia.com/gpu: 2}
            limits: {memory: 20G, nvidia.com/gpu: 2}
          volumeMounts:
            - {name: models, mountPath: /models, subPath: shared}
            - {name: shm, mountPath: /dev/shm}
          readinessProbe: {httpGet: {path: /health, port: 8000}}
"""


def in_documents(text: str) -> Conversion:
    (launch,) = starts_in_documents(yaml.safe_load_all(text))
    return convert(launch)


def remarks_of(conversion: Conversion) -> dict[str, str]:
    return {remark.subject: remark.text for remark in conversion.remarks}


def test_docker_run_becomes_a_resource() -> None:
    (launch,) = starts_in_script(DOCKER)
    conversion = convert(launch)
    assert conversion.document["metadata"] == {"name": "chat"}
    assert conversion.document["spec"] == {
        "model": {"source": {"path": "/models/baichuan-7b"}},
        "engine": {"env": {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}},
        "parameter": {"parallelism": {"tensor": 2}},
        "decode": {"parallelism": {"tensor": 2}},
        "router": {"service": {"port": 8018}},
    }
    validated(conversion.document)
    remarks = remarks_of(conversion)
    assert "hostPath: {path: /data/models/baichuan-7b}" in remarks["model.source.path"]
    assert "model.cache" in remarks["--volume ~/.cache/huggingface:/root/.cache/huggingface"]
    assert "accelerator.devices" in remarks['--gpus "device=0,1"']
    assert "runtimeClassName" in remarks["--runtime nvidia"]
    assert "shared memory" in remarks["--ipc host"]
    assert "engine.image" in remarks["image vllm/vllm-openai:v0.6.3"]
    assert "your machine" in remarks["--env NCCL_DEBUG"]
    assert "HUGGING_FACE_HUB_TOKEN" in remarks
    assert not {subject for subject in remarks if subject in {"-dit", "--rm", "--detach"}}


@pytest.mark.parametrize(
    "words",
    [
        ["docker", "run", "--entrypoint", "vllm", "mine:1", "serve", "a/b"],
        ["podman", "run", "mine:1", "vllm", "serve", "a/b"],
        ["docker", "container", "run", "--gpus=all", "mine:1", "bash", "-lc", "cd /x && vllm serve a/b"],
        [
            "sudo",
            "docker",
            "run",
            "-it",
            "mine:1",
            "python3",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model=a/b",
        ],
    ],
)
def test_a_container_may_start_vllm_in_several_ways(words: list[str]) -> None:
    (launch,) = starts_in_words(words)
    spec = convert(launch).document["spec"]
    assert spec["model"]["source"] == {"huggingFace": {"repository": "a/b"}}
    assert spec["engine"] == {"image": "mine:1"}


@pytest.mark.parametrize(
    ("image", "kept"),
    [
        ("vllm/vllm-openai:v0.33.0", None),
        ("docker.io/vllm/vllm-openai:v0.33.0", None),
        ("vllm/vllm-openai:v0.33.0-x86_64", "vllm/vllm-openai:v0.33.0-x86_64"),
        ("vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.32.0"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:v0.6.3", None),
        ("mirror.example:5000/vllm/vllm-openai:v0.6.3", "mirror.example:5000/vllm/vllm-openai:v0.6.3"),
        ("lmcache/vllm-openai-nightly", "lmcache/vllm-openai-nightly"),
    ],
)
def test_an_image_of_vllm_needs_no_program(image: str, kept: str | None) -> None:
    (launch,) = starts_in_words(["docker", "run", image, "a/b", "--seed", "1"])
    conversion = convert(launch)
    assert conversion.document["spec"]["engine"] == {"seed": 1, **({"image": kept} if kept else {})}
    replaced = kept is None and "0.33.0" not in image
    assert any(r.left_out and r.subject == f"image {image}" for r in conversion.remarks) is replaced


@pytest.mark.parametrize(
    ("image", "kept"),
    [
        ("vllm/vllm-openai:v0.33.0", {}),
        ("registry.example/llm/vllm-openai:0.33.0-cuda", {"image": "registry.example/llm/vllm-openai:0.33.0-cuda"}),
    ],
)
def test_the_options_are_those_of_the_release_of_the_image(image: str, kept: dict[str, str]) -> None:
    given = [
        "--watchdog-config",
        '{"a": 1}',
        "--disable-lora",
        "--disable-sleep-mode",
        "--enable-cascade-attn",
        "--no-such-option",
    ]
    (launch,) = starts_in_words(["docker", "run", image, "a/b", *given])
    conversion = convert(launch)
    args = {"watchdog-config": {"a": 1}, "enable-sleep-mode": False, "disable-cascade-attn": False}
    assert conversion.document["spec"]["engine"] == {**kept, "args": args}
    assert "vLLM 0.33.0 has no such option" in remarks_of(conversion)["--no-such-option"]
    validated(conversion.document)
    assert examine(conversion.document, RenderSettings()).problems == ()


def test_an_image_of_another_known_release_is_kept_with_its_options() -> None:
    image = "vllm/vllm-openai:v0.32.0"
    (launch,) = starts_in_words(["docker", "run", image, "a/b", "--watchdog-config", "{}", "--enable-sleep-mode"])
    conversion = convert(launch)
    assert conversion.document["spec"]["engine"] == {"image": image, "args": {"enable-sleep-mode": True}}
    assert "vLLM 0.32.0 has no such option" in remarks_of(conversion)["--watchdog-config {}"]


def test_an_image_that_is_replaced_has_the_options_of_the_default() -> None:
    (launch,) = starts_in_words(["docker", "run", "vllm/vllm-openai:v0.34.0", "a/b", "--no-such-option"])
    assert "vLLM 0.33.0 has no such option" in remarks_of(convert(launch))["--no-such-option"]


def test_another_image_is_taken_for_a_server_by_its_options() -> None:
    (launch,) = starts_in_words(["docker", "run", "mine:1", "--model=a/b"])
    assert convert(launch).document["spec"]["engine"] == {"image": "mine:1"}
    with pytest.raises(ConversionError):
        starts_in_words(["docker", "run", "vllm-router:1", "--port", "80"])


def test_a_service_of_a_compose_file_becomes_a_resource() -> None:
    conversion = in_documents(COMPOSE)
    spec = conversion.document["spec"]
    assert spec["model"]["source"]["huggingFace"]["tokenSecret"] == {"name": "hugging-face", "key": "token"}
    assert spec["model"]["maxModelLength"] == 8192
    assert spec["engine"] == {"env": {"NCCL_DEBUG": "INFO"}}
    assert spec["router"]["service"] == {"port": 8018}
    assert "shared memory" in remarks_of(conversion)["service vllm: ipc"]
    validated(conversion.document)


def test_a_deployment_becomes_a_resource() -> None:
    conversion = in_documents("kind: Service\napiVersion: v1\n---" + DEPLOYMENT)
    assert conversion.document["metadata"] == {"name": "mistral-7b", "namespace": "llms"}
    spec = conversion.document["spec"]
    claim = {"claimName": "models", "path": "shared/mistral/7b"}
    assert spec["model"] == {"source": {"persistentVolumeClaim": claim}, "maxModelLength": 4096}
    assert spec["engine"] == {"env": {"MAX_LENGTH": "4096"}, "image": "registry.example/vllm:0.32"}
    assert spec["parameter"] == spec["decode"]
    assert spec["decode"] == {
        "parallelism": {"tensor": 2},
        "replicas": 2,
        "resources": {"requests": {"cpu": "2", "memory": "6G"}, "limits": {"memory": "20G"}},
        "accelerator": {"products": ["NVIDIA-A100-SXM4-80GB"]},
        "placement": {
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "priorityClassName": "high",
        },
    }
    remarks = remarks_of(conversion)
    assert "4 GPUs and D on 4 GPUs" in remarks["P and D"]
    assert {"container: readinessProbe", "pod: serviceAccountName", "env NODE", "volume shm"} <= remarks.keys()
    validated(conversion.document)


@pytest.mark.parametrize(
    "member", ["metadata", "spec", "template", "containers", "env", "args", "resources", "volumes"]
)
@pytest.mark.parametrize("value", [None, 7, "text", [], [[1]], {"a": {"b": 1}}, [{"name": {"x": 1}}]])
def test_a_manifest_of_another_shape_is_no_crash(member: str, value: Any) -> None:
    document = yaml.safe_load(DEPLOYMENT)

    def replaced(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: value if key == member else replaced(item) for key, item in node.items()}
        return [replaced(item) for item in node] if isinstance(node, list) else node

    try:
        (launch,) = starts_in_documents([replaced(document)])
        convert(launch)
    except ConversionError:
        return


@pytest.mark.parametrize("member", ["image", "command", "environment", "ports", "volumes", "entrypoint"])
@pytest.mark.parametrize("value", [None, 7, "text", [], [[1]], {"a": {"b": 1}}, [{"name": {"x": 1}}]])
def test_a_compose_file_of_another_shape_is_no_crash(member: str, value: Any) -> None:
    document = yaml.safe_load(COMPOSE)
    document["services"]["vllm"][member] = value
    try:
        (launch,) = starts_in_documents([document])
        convert(launch)
    except ConversionError:
        return


@pytest.mark.parametrize(
    ("selector", "router"),
    [("{app: mistral}", {"service": {"port": 8080, "type": "LoadBalancer"}}), ("{app: other}", None), ("{}", None)],
)
def test_the_service_of_a_deployment_gives_its_port(selector: str, router: Any) -> None:
    spec = f"spec: {{type: LoadBalancer, selector: {selector}, ports: [{{port: 8080, targetPort: 8000}}]}}"
    conversion = in_documents(f"apiVersion: v1\nkind: Service\nmetadata: {{name: chat}}\n{spec}\n---{DEPLOYMENT}")
    assert conversion.document["spec"].get("router") == router
    assert ("Service chat" in remarks_of(conversion)) == (router is not None)
    validated(conversion.document)


def test_items_of_a_list_are_read() -> None:
    items = [yaml.safe_load(DEPLOYMENT), {"apiVersion": "v1", "kind": "Service", "spec": None}, 5]
    (launch,) = starts_in_documents([{"apiVersion": "v1", "kind": "List", "items": items}])
    assert launch.name == "mistral-7b"


def test_a_document_beyond_the_bounds_is_refused() -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ConversionError, match="nested deeper"):
        starts_in_documents([{"apiVersion": "v1", "kind": "Pod", "spec": deep}])


def test_containers_within_containers_without_end_are_refused() -> None:
    with pytest.raises(ConversionError, match="nested too deeply"):
        starts_in_script("docker run " * 3000 + "vllm serve a/b")


def test_a_shell_within_shells_without_end_is_refused() -> None:
    text = "vllm serve a/b"
    for _ in range(6):
        text = (
            f"sh -c {text!r}" if "'" not in text else 'sh -c "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        )
    with pytest.raises(ConversionError, match="nested too deeply"):
        starts_in_script(text)
