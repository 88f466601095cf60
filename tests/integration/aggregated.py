"""The API group `external.metrics.k8s.io`, served by a process on this host."""

from contextlib import suppress
from typing import Any

from pdinference.cluster.errors import ApiError
from pdinference.loadmetrics.metrics_api.group import GROUP, VERSION
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE
from tests.integration.world import World
from tests.waiting import until

_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"


async def create_service(world: World, name: str, port: int) -> None:
    """A Service in the test's namespace whose only endpoint is a port of this host."""
    services = f"/api/v1/namespaces/{world.namespace}/services"
    endpoints = f"/api/v1/namespaces/{world.namespace}/endpoints"
    metadata = {"name": name, "namespace": world.namespace}
    here = {"addresses": [{"ip": world.cluster.host_address}], "ports": [{"name": "https", "port": port}]}
    await world.api.create(services, {"metadata": metadata, "spec": {"ports": [{"name": "https", "port": 443}]}})
    # For the aggregator of Kubernetes 1.30. A controller makes the EndpointSlice of it that later ones read.
    await world.api.create(endpoints, {"metadata": metadata, "subsets": [here]})


async def register(world: World, namespace: str, service: str, **spec: Any) -> None:
    """Make a Service the server of the API group; options of the APIService may follow."""
    await unregister(world)
    body = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE},
        "spec": {
            "service": {"namespace": namespace, "name": service, "port": 443},
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            **spec,
        },
    }
    await world.api.apply(_PATH, body, manager="test")


async def unregister(world: World) -> None:
    with suppress(ApiError):
        found = await world.api.get(_PATH)
        await world.api.delete(_PATH, uid=found["metadata"]["uid"])


async def available(world: World) -> None:
    """Wait until the API server reaches the server of the API group."""

    async def seen() -> bool:
        conditions = ((await world.api.get(_PATH)).get("status") or {}).get("conditions", [])
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

    await until(seen, "external metrics are served")
