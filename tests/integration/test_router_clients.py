"""Who may connect to the router, on a real API server: the NetworkPolicy, the Service and the condition."""

from typing import Any

from tests.integration.operators import Operators
from tests.integration.world import World
from tests.waiting import until

EXPOSED = {"service": {"type": "LoadBalancer"}}
RANGE = {"clients": [{"cidr": "192.0.2.0/24"}]}
KEYS = {"apiKeys": {"secretName": "clients"}}


async def test_an_exposed_router_says_whether_clients_need_keys(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(router=EXPOSED)
    await world.says("ClientsAuthenticated", "False", "NoApiKeys", "spec.router.service.type", "spec.router.apiKeys")
    await world.apply(router=EXPOSED | KEYS)
    await world.says("ClientsAuthenticated", "True", "ApiKeys")
    await world.apply(router=KEYS)

    async def absent() -> bool:
        return not await world.condition("ClientsAuthenticated")

    await until(absent, "the condition is absent while only the cluster reaches the router")


async def test_clients_change_the_policy_and_the_service_and_no_pod(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(router=EXPOSED)
    await world.settled()
    await until(world.complete, "all children are there")
    router = (await world.children())["Deployment", "llama-router"]

    async def admitted() -> list[Any] | None:
        clients = (await world.children())["NetworkPolicy", "llama-router"]["spec"]["ingress"][0]
        peers: list[Any] | None = clients.get("from")
        return peers

    async def forwards() -> str:
        policy: str = (await world.children())["Service", "llama"]["spec"]["externalTrafficPolicy"]
        return policy

    async def limited() -> bool:
        return {"ipBlock": {"cidr": "192.0.2.0/24"}} in (await admitted() or ()) and await forwards() == "Local"

    async def open_again() -> bool:
        return await admitted() is None and await forwards() == "Cluster"

    assert await open_again()
    await world.apply(router=EXPOSED | RANGE)
    await until(limited, "the policy admits the range, and nodes keep addresses")
    await world.apply(router=EXPOSED)
    await until(open_again, "everyone is admitted again")
    after = (await world.children())["Deployment", "llama-router"]
    assert after["metadata"]["generation"] == router["metadata"]["generation"]
