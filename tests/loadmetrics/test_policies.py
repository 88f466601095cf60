"""Targets of HPAs: from their status, and before that from the spec."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.loadmetrics.policies import Policies
from pdinference.planning.scaling.signals import Signal
from tests.loadmetrics.autoscaled import OWNER, Autoscaled

SCALED: dict[str, Any] = {"autoscaling": {"maxReplicas": 3, "targets": {"kvDemand": 80}}}
INVALID: dict[str, Any] = {"parallelism": {"tensor": 0}}


class Cluster(Autoscaled):
    """A resource, its HPA, and what the operator makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.policies = Policies(self.cache)

    def aims(self, metric: str, **target: str) -> None:
        self.hpa({"type": "External", "external": {"metric": {"name": metric}, "target": target}})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_before_there_is_an_hpa_the_spec_says_it(cluster: Cluster) -> None:
    assert cluster.policies.policy(OWNER) == {}
    cluster.resource()
    assert cluster.policies.policy(OWNER) == {}
    cluster.resource(**SCALED)
    assert cluster.policies.policy(OWNER) == {Role.DECODE: {Signal.KV_DEMAND: 0.8}}


def test_whether_requests_go_to_d_without_p_is_known_from_the_spec(cluster: Cluster) -> None:
    assert not cluster.policies.is_adaptive(OWNER)
    cluster.resource(**SCALED)
    assert not cluster.policies.is_adaptive(OWNER)
    adaptive = {"router": {"disaggregation": "Adaptive"}}
    cluster.resource(**SCALED, more=adaptive)
    assert cluster.policies.is_adaptive(OWNER)
    cluster.resource(**SCALED, more={**adaptive, "mode": "Aggregated"})
    assert not cluster.policies.is_adaptive(OWNER)


@pytest.mark.parametrize("later", [INVALID, {**SCALED, **INVALID}, {}])
def test_an_hpa_goes_on_by_what_it_was_told_whatever_the_spec_has_become(
    cluster: Cluster, later: dict[str, Any]
) -> None:
    cluster.resource(**SCALED)
    cluster.aims(Signal.KV_DEMAND, type="AverageValue", averageValue="800m")
    told = cluster.policies.policy(OWNER)
    assert told == {Role.DECODE: {Signal.KV_DEMAND: 0.8}}
    cluster.resource(**later)
    assert cluster.policies.policy(OWNER) == told


def test_without_an_hpa_an_invalid_spec_asks_for_nothing(cluster: Cluster) -> None:
    cluster.resource(**SCALED, **INVALID)
    assert cluster.policies.policy(OWNER) == {}


def test_foreign_metrics_and_total_targets_are_not_targets_of_a_pod(cluster: Cluster) -> None:
    cluster.resource()
    cluster.aims("queue_length", type="AverageValue", averageValue="3")
    assert cluster.policies.policy(OWNER) == {}
    cluster.aims(Signal.WAITING_REQUESTS, type="Value", value="30")
    assert cluster.policies.policy(OWNER) == {Role.DECODE: {}}


def test_an_hpa_that_goes_by_latencies_alone_goes_on_too(cluster: Cluster) -> None:
    metric = "pdinference_time_to_first_token_milliseconds_p90"
    target = {"type": "Value", "value": "500"}
    external = {"type": "External", "external": {"metric": {"name": metric}, "target": target}}
    scaled: dict[str, Any] = {"autoscaling": {"maxReplicas": 3, "metrics": [external]}}
    cluster.resource(**scaled)
    assert cluster.policies.policy(OWNER) == {Role.DECODE: {}}
    cluster.aims(metric, **target)
    cluster.resource(**scaled, **INVALID)
    assert cluster.policies.policy(OWNER) == {Role.DECODE: {}}


def test_a_fault_at_one_stored_spec_ends_there(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scrape rounds of all tenants use the policies."""

    def fails(_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("pdinference.loadmetrics.policies.validated", fails)
    cluster.resource(**SCALED)
    assert cluster.policies.policy(OWNER) == {}


@pytest.mark.parametrize("source", ["Builtin", "KEDA", "PrometheusAdapter"])
def test_targets_are_known_whichever_source_reads_the_load(cluster: Cluster, source: str) -> None:
    cluster.resource(source=source, **SCALED)
    assert cluster.policies.policy(OWNER) == {Role.DECODE: {Signal.KV_DEMAND: 0.8}}
    assert cluster.policies.uses_metrics_api(OWNER) is (source == "Builtin")
    assert [owner for owner, _ in cluster.policies.autoscaled()] == [OWNER]


def test_keda_goes_on_by_its_triggers_while_the_spec_is_invalid(cluster: Cluster) -> None:
    triggers = [
        {"type": "prometheus", "name": "kvDemand", "metricType": "AverageValue", "metadata": {"threshold": "0.8"}},
        {"type": "prometheus", "name": "queue", "metricType": "Value", "metadata": {"threshold": "30"}},
        {"type": "cpu", "metadata": {"value": "60"}},
    ]
    cluster.resource(source="KEDA", **SCALED, **INVALID)
    cluster.scaled_object(*triggers)
    assert cluster.policies.policy(OWNER) == {Role.DECODE: {Signal.KV_DEMAND: 0.8}}


def test_a_role_that_the_mode_lacks_has_no_targets(cluster: Cluster) -> None:
    for mode, roles in (("Disaggregated", {Role.PARAMETER, Role.DECODE}), ("Aggregated", {Role.DECODE})):
        cluster.resource(**SCALED, more={"mode": mode, "parameter": SCALED})
        assert cluster.policies.policy(OWNER).keys() == roles
