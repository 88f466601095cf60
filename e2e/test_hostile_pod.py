"""vLLM pods of one tenant are replaced by ones that answer what no vLLM would; another tenant's autoscaling goes on."""

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from e2e.conftest import NAME, Serving
from e2e.hostile_server import ANSWERS
from e2e.install import OPERATOR_NAMESPACE, RELEASE, apply
from e2e.kubectl import Kubectl, KubectlError
from e2e.test_autoscaling import on_kv_demand, scaled, sees
from e2e.waiting import wait_until
from pdinference.api import names
from pdinference.api.names import ENGINE_PORT, Role
from pdinference.loadmetrics.scraping.window import FRESH_S
from pdinference.planning.scaling.gauges import LABEL_NAMESPACE
from pdinference.planning.scaling.signals import Signal

pytestmark = [pytest.mark.timeout(2400), pytest.mark.usefixtures("without_autoscaling_after")]

HOSTILE = "hostile"
_SERVER = Path(__file__).with_name("hostile_server.py")
_HEALTH_PORT = 8080
_PODS = 6
_READS = "pdinference_scrapes_total"
_SEVERAL_ROUNDS = 5
"""Reads of the good tenant's two pods. Without autoscaling they are read once, and that load counts for 20 s."""
_FAILURES = "pdinference_scrape_failures_total"
_DEAD = "pdinference_background_task_failures_total"
_REASONS = {"timeout", "too-long", "encoding", "malformed", "status"}


@pytest.fixture
def hostile(serving: Serving) -> Iterator[Kubectl]:
    """A tenant whose own P and D pods fit on no node, so that only those count that the test makes."""
    tenant = Kubectl(serving.cluster.kubeconfig, HOSTILE)
    apply(tenant, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOSTILE}})
    resource = scaled(serving, Role.DECODE, metrics=on_kv_demand("1"))
    resource["metadata"]["namespace"] = HOSTILE
    for role in (Role.PARAMETER, Role.DECODE):
        resource["spec"][role.value]["resources"] = {"requests": {"cpu": "1000", "memory": "1Gi"}}
    apply(tenant, resource)
    wait_until("its revision", lambda: tenant.get("pdi", NAME).get("status", {}).get("revision"))
    yield tenant
    tenant.run("delete", "namespace", HOSTILE, "--wait=false", "--ignore-not-found")


def pod(number: int, image: str, revision: str, kinds: list[str]) -> dict[str, Any]:
    """A ReplicaSet with a pod that the operator takes for a D pod: its name is that of one of D's ReplicaSets."""
    container = {
        "name": names.ENGINE_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", _SERVER.read_text(encoding="utf-8"), str(ENGINE_PORT), ",".join(kinds)],
        "ports": [{"name": names.ENGINE_PORT_NAME, "containerPort": ENGINE_PORT}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    own = {"pod-template-hash": f"hostile{number}"}
    role = names.role_selector(NAME, Role.DECODE, revision)
    labels = {**role, names.LABEL_MANAGED_BY: names.FIELD_MANAGER, **own}
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"{names.revision_object(NAME, Role.DECODE, revision)}-hostile{number}"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def operators(serving: Serving) -> dict[str, dict[str, Any]]:
    """The operator's pods by their names."""
    selector = f"app.kubernetes.io/instance={RELEASE}"
    found = serving.kubectl.get("pods", "-n", OPERATOR_NAMESPACE, "-l", selector)["items"]
    return {each["metadata"]["name"]: each for each in found}


def exported(serving: Serving, operator: str) -> list[Sample]:
    """The metrics of an operator."""
    path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{operator}:{_HEALTH_PORT}/proxy/metrics"
    families = text_string_to_metric_families(serving.kubectl.run("get", "--raw", path))
    return [sample for family in families for sample in family.samples]


def counted(serving: Serving, operator: str) -> dict[tuple[str, str], float]:
    """The operator's counters of failures, by metric and reason or task."""
    samples = (sample for sample in exported(serving, operator) if sample.name in {_FAILURES, _DEAD})
    return {(sample.name, next(iter(sample.labels.values()))): sample.value for sample in samples}


def knows_the_load(serving: Serving, operator: str) -> bool:
    """Whether an operator has read the good tenant's load. Each one answers HPAs, by its own readings."""
    namespaces = (one.labels[LABEL_NAMESPACE] for one in exported(serving, operator) if one.name == Signal.KV_DEMAND)
    return serving.kubectl.namespace in namespaces


def reads(serving: Serving) -> dict[str, float]:
    """How many pods each operator has read successfully."""
    return {
        name: sum(
            sample.value
            for sample in exported(serving, name)
            if sample.name == _READS and sample.labels["result"] == "success"
        )
        for name in operators(serving)
    }


def reasons(serving: Serving, operator: str) -> set[str]:
    """Why an operator could not read pods."""
    return {reason for (metric, reason), count in counted(serving, operator).items() if metric == _FAILURES and count}


def age(serving: Serving) -> float:
    """Seconds since the oldest part of the good tenant's load was read; infinite when HPAs get no value."""
    selector = f"{names.LABEL_NAME}%3D{NAME},{names.LABEL_ROLE}%3D{Role.DECODE}"
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{serving.kubectl.namespace}/{Signal.KV_DEMAND}"
    try:
        (item,) = json.loads(serving.kubectl.run("get", "--raw", f"{path}?labelSelector={selector}"))["items"]
    except KubectlError as error:
        if "ServiceUnavailable" in str(error):
            return math.inf
        raise
    return (datetime.now(UTC) - datetime.fromisoformat(item["timestamp"])).total_seconds()


def restarts(serving: Serving) -> dict[str, int]:
    return {
        name: sum(status["restartCount"] for status in each["status"]["containerStatuses"])
        for name, each in operators(serving).items()
    }


def test_hostile_pods_of_one_tenant_leave_the_other_alone(serving: Serving, hostile: Kubectl) -> None:
    read = reads(serving)
    apply(serving.kubectl, scaled(serving, Role.DECODE, metrics=on_kv_demand("1")))
    wait_until("an HPA that sees", lambda: sees(serving) == "True")
    wait_until(
        "every operator to know the load", lambda: all(knows_the_load(serving, one) for one in operators(serving))
    )
    wait_until(
        "every operator to read it regularly",
        lambda: all(count >= read[name] + _SEVERAL_ROUNDS for name, count in reads(serving).items()),
    )
    before = restarts(serving)

    kinds = list(ANSWERS)
    theirs = hostile.get("pdi", NAME)["status"]["revision"]
    for number in range(_PODS):
        apply(hostile, pod(number, serving.images.operator, theirs, kinds[number::_PODS]))

    ages = []

    def seen() -> bool:
        ages.append(age(serving))
        return all(reasons(serving, operator) >= _REASONS for operator in operators(serving))

    wait_until("every operator to have read every kind", seen)
    assert max(ages) < FRESH_S
    assert sees(serving) == "True"
    assert restarts(serving) == before
    for operator in operators(serving):
        assert not [task for (metric, task), n in counted(serving, operator).items() if metric == _DEAD and n]
