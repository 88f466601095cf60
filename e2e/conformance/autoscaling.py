"""`pod_autoscaling`: Kubernetes' HorizontalPodAutoscaler scales D by the KV cache that requests need."""

import json
from typing import Any, Final

from e2e.conformance.bench import Bench
from e2e.conformance.evidence import Verdict
from e2e.conformance.notes import Notes
from e2e.install import apply
from e2e.load import Shape, load
from e2e.waiting import wait_until
from pdinference.api.names import LABEL_NAME, LABEL_ROLE, Role

_METRIC: Final = "pdinference_kv_demand"
_API: Final = "/apis/external.metrics.k8s.io/v1beta1"
_EXCEEDED: Final = "1m"
"""A thousandth of the cache of one pod, which the requests of the load exceed."""
_UNDERCUT: Final = "1"
_UP_SECONDS: Final = 300


def pod_autoscaling(bench: Bench, notes: Notes) -> None:
    """The test plan of KAR-0057: above the target one pod more, below it one less, and no request lost."""
    url = bench.kubectl.get("pdi", bench.name)["status"]["url"]
    earlier = len(bench.pods(bench.name, Role.PARAMETER))
    with load(bench.kubectl, url, bench.model, bench.client, shape=Shape()) as client:
        notes.did(f"one client in the cluster, with one request after the other to {url}")
        notes.apply(scaled(bench, _EXCEEDED), keep="resource-target-exceeded")
        hpa = wait_until("the HPA to read the metric", lambda: _reading(bench), timeout=120)
        value = hpa["status"]["currentMetrics"][0]["external"]["current"]["averageValue"]
        notes.saw("the HPA reads the metric", True, f"{_METRIC} is {value}, the target {_EXCEEDED}")
        selector = f"{LABEL_NAME}={bench.name},{LABEL_ROLE}={Role.DECODE}".replace("=", "%3D").replace(",", "%2C")
        raw = f"{_API}/namespaces/{bench.kubectl.namespace}/{_METRIC}?labelSelector={selector}"
        notes.keep("external-metric.json", json.dumps(json.loads(notes.run("get", "--raw", raw)), indent=2))

        wait_until("two D pods", lambda: _ready(bench) == 2, timeout=_UP_SECONDS)
        notes.get("hpa", keep="hpa-scaled-up")
        notes.saw("above the target, D gets a pod more", True, f"2 ready pods. {_rescaled(notes)}")
        others = len(bench.pods(bench.name, Role.PARAMETER))
        notes.saw("P keeps its count meanwhile", others == earlier, f"{earlier}, then {others} pods")

        notes.apply(scaled(bench, _UNDERCUT), keep="resource-target-undercut")
        wait_until("one D pod", lambda: _replicas(bench) == 1, timeout=_UP_SECONDS)
        notes.get("hpa", keep="hpa-scaled-down")
        notes.saw("below the target, D loses it", True, f"1 pod. {_rescaled(notes)}")
        lost = client.unanswered()
        sent = client.report().answered
        notes.saw("no request was lost", not lost, f"{sent} answered, {len(lost)} not")
    accelerated = bench.accelerated()
    apply(bench.kubectl, bench.document)
    if not accelerated:
        notes.lacks(Verdict.NEEDS_ACCELERATOR, "The pods that were scaled run vLLM on CPU.")


def scaled(bench: Bench, target: str) -> dict[str, Any]:
    """The PDInference with one or two D pods, by this share of the KV cache."""
    selector = {"matchLabels": {LABEL_NAME: bench.name, LABEL_ROLE: Role.DECODE.value}}
    external = {
        "metric": {"name": _METRIC, "selector": selector},
        "target": {"type": "AverageValue", "averageValue": target},
    }
    down = {"stabilizationWindowSeconds": 15, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
    scaling = {
        "maxReplicas": 2,
        "metrics": [{"type": "External", "external": external}],
        "behavior": {"scaleDown": down},
    }
    return bench.edited(decode={"autoscaling": scaling})


def _reading(bench: Bench) -> dict[str, Any] | None:
    """The HPA of D, once it has a value of the metric."""
    for hpa in bench.kubectl.get("hpa")["items"]:
        found: dict[str, Any] = hpa
        active = any(
            one["type"] == "ScalingActive" and one["status"] == "True" for one in hpa["status"].get("conditions", [])
        )
        if active and hpa["status"].get("currentMetrics"):
            return found
    return None


def _rescaled(notes: Notes) -> str:
    """What the HPA said of its last change."""
    found = notes.get("events", "--field-selector=reason=SuccessfulRescale", keep="events")["items"]
    last = max(found, key=lambda event: str(event["lastTimestamp"]), default=None)
    return f"SuccessfulRescale: {last['message']}" if last is not None else "The HPA wrote no Event."


def _ready(bench: Bench) -> int:
    return int(_decode(bench)["ready"])


def _replicas(bench: Bench) -> int:
    return int(_decode(bench)["replicas"])


def _decode(bench: Bench) -> dict[str, Any]:
    roles: dict[str, dict[str, Any]] = bench.kubectl.get("pdi", bench.name)["status"]["roles"]
    return roles[Role.DECODE.value]
