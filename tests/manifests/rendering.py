"""Rendered children of a resource, for tests."""

from typing import Any

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests import Manifest, RenderSettings, render
from tests.conftest import allowing

METRICS_PORTS: dict[str, dict[str, Any]] = {
    "llama-router": {"port": "metrics"},
    "llama-parameter": {"port": "http"},
    "llama-decode": {"port": 8000, "endPort": 8015},
}
"""Where metrics are read, by NetworkPolicy. D's pods may have several engines."""

POLICY = allowing("/data/llama", writable=["/data/kv"], routerImages=["registry.example/*"])
SETTINGS = RenderSettings(router_image="registry.example/router:1", policy=POLICY)


def children(resource: PDInference) -> dict[tuple[str, str], Manifest]:
    return {(o["kind"], o["metadata"]["name"]): o for o in render(resource, SETTINGS).objects}


def only(resource: PDInference, kind: str, role: str) -> Manifest:
    (found,) = (
        o for (k, _), o in children(resource).items() if k == kind and o["metadata"]["labels"][names.LABEL_ROLE] == role
    )
    return found


def pod_spec(workload: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec
