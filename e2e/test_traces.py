"""One trace through the router, P and D, in a real OpenTelemetry collector."""

import copy
import re
import secrets
import shutil
from collections.abc import Iterator

import httpx
import pytest
import yaml

from e2e.cluster.build import binary
from e2e.conftest import Serving
from e2e.install import apply, remove_at_once
from e2e.volumes import USER, shared_folder
from e2e.waiting import wait_ready, wait_until

pytestmark = pytest.mark.timeout(900)

NAME = "traced"
COLLECTOR = "otel-collector"
CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "0.0.0.0:4318"}}}}
exporters: {debug: {verbosity: detailed}}
service: {pipelines: {traces: {receivers: [otlp], exporters: [debug]}}, telemetry: {metrics: {level: none}}}
"""
SERVICES = {"pdinference-router", f"{NAME}-parameter", f"{NAME}-decode"}


def manifests(image: str) -> Iterator[dict[str, object]]:
    """The collector, and its address."""
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": COLLECTOR},
        "spec": {"selector": {"app": COLLECTOR}, "ports": [{"port": 4318}]},
    }
    yield yaml.safe_load(
        f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: {COLLECTOR}, labels: {{app: {COLLECTOR}}}}}
        spec:
          securityContext: {{runAsNonRoot: true, runAsUser: {USER}, seccompProfile: {{type: RuntimeDefault}}}}
          containers:
            - name: collector
              image: {image}
              command: [/tools/{COLLECTOR}, --config=/tools/config.yaml]
              readinessProbe: {{tcpSocket: {{port: 4318}}, periodSeconds: 1}}
              securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
              volumeMounts: [{{name: tools, mountPath: /tools, readOnly: true}}]
          volumes: [{{name: tools, persistentVolumeClaim: {{claimName: {COLLECTOR}}}}}]
        """
    )


@pytest.fixture
def collected(serving: Serving) -> Iterator[Serving]:
    """A collector that prints what it gets."""
    kubectl = serving.kubectl
    with shared_folder(kubectl, COLLECTOR) as tools:
        shutil.copy(binary(COLLECTOR), tools)
        (tools / "config.yaml").write_text(CONFIG, encoding="utf-8")
        for manifest in manifests(serving.images.vllm):
            apply(kubectl, manifest)
        kubectl.run("wait", f"pod/{COLLECTOR}", "--for=condition=Ready", "--timeout=120s")
        yield serving
        remove_at_once(kubectl, NAME)
        kubectl.run("delete", f"pod/{COLLECTOR}", f"service/{COLLECTOR}", "--grace-period=1")


def spans(log: str, trace: str) -> dict[str, set[str]]:
    """The names of a trace's spans, by the service that sent them."""
    found: dict[str, set[str]] = {}
    service, of_trace = "", False
    for line in re.findall(r"service\.name: Str\((.*?)\)|Trace ID\s*: (\w+)|Name\s*: (.*)", log):
        if line[0]:
            service = line[0]
        elif line[1]:
            of_trace = line[1] == trace
        elif of_trace:
            found.setdefault(service, set()).add(line[2].strip())
    return found


def test_a_request_has_one_trace_through_the_router_p_and_d(collected: Serving) -> None:
    kubectl = collected.kubectl
    document = copy.deepcopy(collected.example)
    document["metadata"]["name"] = NAME
    document["spec"]["traces"] = {"endpoint": f"http://{COLLECTOR}:4318/v1/traces"}
    document["spec"]["parameter"]["replicas"] = document["spec"]["decode"]["replicas"] = 1
    apply(kubectl, document)
    wait_ready(kubectl, NAME)
    trace = secrets.token_hex(16)
    headers = {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
    body = {"model": NAME, "prompt": "What is a KV cache? " * 20, "max_tokens": 4}
    with kubectl.port_forward(f"service/{NAME}", 80) as url:
        httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60).raise_for_status()

    def complete() -> dict[str, set[str]] | None:
        found = spans(kubectl.run("logs", COLLECTOR), trace)
        return found if found.keys() >= SERVICES else None

    found = wait_until("spans of the router, P and D", complete, timeout=60)
    assert {"prefill", "first_token"} <= found["pdinference-router"]
    assert all("llm_request" in found[service] for service in SERVICES - {"pdinference-router"})
