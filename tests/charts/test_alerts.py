"""The alerts query existing metrics, with valid PromQL, and each one has a section in the runbooks."""

import re
from typing import Any

import promql_parser
import pytest
import yaml

from pdinference.api.v1alpha1.conditions import BY_NAME, KV_TRANSFER, OBJECTIVES_MET
from pdinference.controller.metrics import Metrics
from tests.charts.helm import WITH_MONITOR, HelmError, of_kind, only, rendered
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module", name="rule")
def prometheus_rule() -> dict[str, Any]:
    """Rendered here and not at import: `make test-vllm` collects this file before Helm is built."""
    return only(rendered(WITH_MONITOR), "PrometheusRule")


def _alerts(rule: dict[str, Any]) -> list[dict[str, Any]]:
    return [alert for group in rule["spec"]["groups"] for alert in group["rules"]]


def test_each_alert_queries_an_existing_metric_and_has_a_runbook(rule: dict[str, Any]) -> None:
    assert _alerts(rule)
    for alert in _alerts(rule):
        _check(alert)


def _check(alert: dict[str, Any]) -> None:
    promql_parser.parse(alert["expr"])
    metrics = Metrics()
    metrics.kv_transfer.labels("ns", "llama", "Slow").set(1)
    metrics.objectives.labels("ns", "llama", "Missed").set(1)
    (name,) = re.findall(r"pdinference_\w+", alert["expr"])
    (sample,) = (one for family in metrics.registry.collect() if family.name == name for one in family.samples)
    labels = set(re.findall(r"\w+(?==\")|(?<=[(, ])inference_\w+", alert["expr"]))
    assert labels == sample.labels.keys()
    page, _, section = alert["annotations"]["runbook_url"].removeprefix(f"{_home()}/blob/main/").partition("#")
    lines = (REPOSITORY / page).read_text(encoding="utf-8").splitlines()
    at = lines.index(f"## {section}")
    assert f"`{alert['alert']}`" in lines[at + 2]


def _home() -> str:
    """The page of the repository, by the chart."""
    return str(yaml.safe_load((REPOSITORY / "charts/pdinference-operator/Chart.yaml").read_text("utf-8"))["home"])


def test_there_is_an_alert_for_each_fault(rule: dict[str, Any]) -> None:
    reasons = {reason for alert in _alerts(rule) for reason in re.findall(r'reason="(\w+)"', alert["expr"])}
    assert reasons == BY_NAME[KV_TRANSFER].reasons["False"] | BY_NAME[OBJECTIVES_MET].reasons["False"]


def test_there_is_an_alert_for_an_operator_that_is_away(rule: dict[str, Any]) -> None:
    assert "absent(pdinference_is_leader == 1)" in {alert["expr"] for alert in _alerts(rule)}


def test_they_are_installed_only_on_demand_and_with_the_metrics_of_the_operator(rule: dict[str, Any]) -> None:
    assert of_kind(rendered(), "PrometheusRule") == []
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    with pytest.raises(HelmError, match=r"metrics\.serviceMonitor\.enabled"):
        rendered({"prometheusRule": {"enabled": True}})
