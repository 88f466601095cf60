"""By what HPAs go: what they were told, and before that, what the spec asks for."""

from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.autoscaling.policies import Policies
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import AUTOSCALER, RESOURCE, Owner
from pdinference.planning.scaling.signals import Signal

OWNER = Owner("ns", "llama")
SCALED = {"autoscaling": {"maxReplicas": 3, "targets": {"kvDemand": 80}}}
INVALID = {"parallelism": {"tensor": 0}}


class Cluster:
    """A resource and its HPA."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.policies = Policies(self.cache)
        self._version = 0

    def resource(self, **decode: Any) -> None:
        metadata = self._metadata("llama")
        body = {"metadata": {**metadata, "generation": self._version}, "spec": {"decode": decode}}
        body["spec"] |= {"model": {"source": {"path": "/m"}}}
        self.cache.observe(RESOURCE, body, deleted=False)

    def hpa(self, metric: str, **target: str) -> None:
        owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "llama", "uid": "uid-llama"}
        metadata = {**self._metadata("llama-decode"), "ownerReferences": [owner]}
        external = {"metric": {"name": metric}, "target": target}
        spec = {
            "scaleTargetRef": {"name": "llama-decode-rev"},
            "maxReplicas": 3,
            "metrics": [{"type": "External", "external": external}],
        }
        self.cache.observe(AUTOSCALER, {"metadata": metadata, "spec": spec}, deleted=False)

    def _metadata(self, name: str) -> dict[str, Any]:
        self._version += 1
        return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(self._version)}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_before_there_is_an_hpa_the_spec_says_it(cluster: Cluster) -> None:
    assert cluster.policies.of(OWNER) == {}
    cluster.resource()
    assert cluster.policies.of(OWNER) == {}
    cluster.resource(**SCALED)
    assert cluster.policies.of(OWNER) == {Role.DECODE: {Signal.KV_DEMAND: 0.8}}


@pytest.mark.parametrize("later", [INVALID, {**SCALED, **INVALID}, {}])
def test_an_hpa_goes_on_by_what_it_was_told_whatever_the_spec_has_become(
    cluster: Cluster, later: dict[str, Any]
) -> None:
    cluster.resource(**SCALED)
    cluster.hpa(Signal.KV_DEMAND, type="AverageValue", averageValue="800m")
    told = cluster.policies.of(OWNER)
    assert told == {Role.DECODE: {Signal.KV_DEMAND: 0.8}}
    cluster.resource(**later)
    assert cluster.policies.of(OWNER) == told


def test_without_an_hpa_an_invalid_spec_asks_for_nothing(cluster: Cluster) -> None:
    cluster.resource(**SCALED, **INVALID)
    assert cluster.policies.of(OWNER) == {}


def test_metrics_of_others_and_targets_of_all_pods_together_are_no_aims_of_a_pod(cluster: Cluster) -> None:
    cluster.resource()
    cluster.hpa("queue_length", type="AverageValue", averageValue="3")
    assert cluster.policies.of(OWNER) == {}
    cluster.hpa(Signal.WAITING_REQUESTS, type="Value", value="30")
    assert cluster.policies.of(OWNER) == {Role.DECODE: {}}


def test_an_hpa_that_goes_by_latencies_alone_goes_on_too(cluster: Cluster) -> None:
    metric = "pdinference_time_to_first_token_milliseconds_p90"
    target = {"type": "Value", "value": "500"}
    external = {"type": "External", "external": {"metric": {"name": metric}, "target": target}}
    scaled = {"autoscaling": {"maxReplicas": 3, "metrics": [external]}}
    cluster.resource(**scaled)
    assert cluster.policies.of(OWNER) == {Role.DECODE: {}}
    cluster.hpa(metric, **target)
    cluster.resource(**scaled, **INVALID)
    assert cluster.policies.of(OWNER) == {Role.DECODE: {}}
