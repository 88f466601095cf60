"""Autoscaling on real parts: vLLM's own load, the operator's metrics API from its chart, Kubernetes' own HPA."""

from typing import Any

import pytest

from e2e.conftest import NAME, Serving
from e2e.faults import kill_operators
from e2e.install import apply
from e2e.load import load
from e2e.test_serving import edited
from e2e.waiting import conditions, wait_until
from pdinference.api.names import LABEL_NAME, LABEL_ROLE, Role

pytestmark = pytest.mark.timeout(900)


def scaled(serving: Serving, kv_demand: str) -> dict[str, Any]:
    """The example with D on KV demand: a thousandth of this cache is 262 tokens, half a request of the load."""
    selector = {"matchLabels": {LABEL_NAME: NAME, LABEL_ROLE: Role.DECODE.value}}
    external = {
        "metric": {"name": "pdinference_kv_demand", "selector": selector},
        "target": {"type": "AverageValue", "averageValue": kv_demand},
    }
    down = {"stabilizationWindowSeconds": 30, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
    scaling = {
        "maxReplicas": 2,
        "metrics": [{"type": "External", "external": external}],
        "behavior": {"scaleDown": down},
    }
    return edited(serving, decode={"autoscaling": scaling})


def decode(serving: Serving) -> dict[str, int]:
    found: dict[str, int] = serving.resource()["status"]["roles"]["decode"]
    return found


def test_d_follows_its_kv_cache_up_and_down_and_no_request_fails(serving: Serving) -> None:
    revision = serving.resource()["status"]["revision"]
    with load(serving.kubectl, serving.url, NAME, serving.images.operator) as client:
        apply(serving.kubectl, scaled(serving, "1m"))
        wait_until("two D pods", lambda: decode(serving)["ready"] == 2, timeout=240)
        assert conditions(serving.resource())["Autoscaling"]["status"] == "True"

        assert kill_operators(serving.cluster)
        client.wait_for(more=20)
        assert decode(serving)["desired"] == 2

        apply(serving.kubectl, scaled(serving, "1"))
        wait_until("one D pod", lambda: decode(serving)["replicas"] == 1, timeout=240)
        client.wait_for(more=10)
        assert client.failures() == []

    apply(serving.kubectl, serving.example)
    wait_until("no HPA", lambda: not serving.kubectl.get("hpa")["items"])
    assert serving.resource()["status"]["revision"] == revision, "autoscaling is no part of the pods"
