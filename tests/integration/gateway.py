"""The Gateway API's own definitions, and what a Gateway's controller writes."""

from typing import Any, Final

from e2e.go_modules import gateway_api, yaml_of
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import HTTP_ROUTE
from tests.integration.world import CRD_PATH, World
from tests.waiting import until

_POOL_MODULE: Final = "sigs.k8s.io/gateway-api-inference-extension@v1.6.0"
_POOL_SUM: Final = "h1:cjtwMJYcTnLXBYE5ffR1/hHhn7U1aIFfe2RITYmOXVA="
_POOL_CRD: Final = "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"
_CRD_PATH: Final = f"{CRD_PATH}/{HTTP_ROUTE.plural}.{HTTP_ROUTE.group}"
ACCEPTED: Final = {"Accepted": ("True", "Accepted", ""), "ResolvedRefs": ("True", "ResolvedRefs", "")}
"""Conditions of a route that a Gateway serves: status, reason and message."""


async def install_gateway_api(world: World) -> None:
    """The definition of an HTTPRoute, of the standard channel."""
    await world.install_crd(gateway_api("httproutes"))


async def install_gateways_and_pools(world: World) -> None:
    """The definitions of what platform teams write themselves. No other test is affected by them."""
    await world.install_crd(gateway_api("gateways"))
    await world.install_crd(yaml_of(_POOL_MODULE, _POOL_SUM, _POOL_CRD))


async def uninstall_gateway_api(world: World) -> None:
    """Delete the definition, and with it all HTTPRoutes."""
    await world.api.delete(_CRD_PATH, uid=(await world.api.get(_CRD_PATH))["metadata"]["uid"])

    async def gone() -> bool:
        return await world.get(HTTP_ROUTE, "llama") is None and _CRD_PATH.rpartition("/")[2] not in {
            item["metadata"]["name"] for item in (await world.api.get(CRD_PATH))["items"]
        }

    await until(gone, "HTTPRoutes are no longer served")


async def judge(world: World, **conditions: tuple[str, str, str]) -> None:
    """Play the controller: write these conditions for each parent and the current generation of the route."""
    path = HTTP_ROUTE.path(world.namespace, "llama")
    live = await world.api.get(path)
    parents = [
        _entry(reference, live["metadata"]["generation"], conditions) for reference in live["spec"]["parentRefs"]
    ]
    await world.api.merge(f"{path}/status", {"status": {"parents": parents}})


def _entry(reference: Json, generation: int, conditions: dict[str, tuple[str, str, str]]) -> dict[str, Any]:
    return {
        "parentRef": reference,
        "controllerName": "example.com/gateway",
        "conditions": [
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "observedGeneration": generation,
                "lastTransitionTime": "2026-11-22T12:00:00Z",
            }
            for type_, (status, reason, message) in conditions.items()
        ],
    }
