"""Resources that sleep: a router in place of the router's pod, on loopback addresses."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pdinference.api.names import ROUTER_STATE_PORT, Role
from pdinference.cluster.kinds import DEPLOYMENT, POD, STATEFUL_SET
from tests.integration.world import World
from tests.router.engines import Fleet, fleet
from tests.waiting import until

ADDRESS = f"127.78.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
"""A loopback address of this process alone: the router's state port is the same everywhere."""
SLEEPY: dict[str, Any] = {
    "parameter": {"autoscaling": {"maxReplicas": 2}},
    "decode": {"autoscaling": {"maxReplicas": 2}},
    "autoscaling": {"scaleToZero": {"afterSeconds": 10}},
}


@asynccontextmanager
async def router(*, queue: int = 10, wait: float = 60) -> AsyncIterator[Fleet]:
    """A router in place of the router's pod, with a P and a D pod to send requests to."""
    rules = {"max_queued": queue, "max_wait": wait}
    async with fleet("p", "d", host=ADDRESS, state_port=ROUTER_STATE_PORT, rules=rules) as found:
        yield found


async def tell(world: World, revision: str) -> None:
    """From now on the operator reads the activity from the router."""
    (pod,) = await world.pods(Role.ROUTER, revision)
    path = POD.path(world.namespace, pod["metadata"]["name"]) + "/status"
    await world.api.merge(path, {"status": {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}})


async def is_ready(world: World, reason: str) -> None:
    """Wait until the condition `Ready` has this reason."""
    await world.says("Ready", f" {reason}: ")


async def counts(world: World, revision: str) -> list[int]:
    """How many pods P and D are to have."""
    workloads = (STATEFUL_SET, f"llama-parameter-{revision}"), (DEPLOYMENT, f"llama-decode-{revision}")
    found = [await world.get(kind, name) or {} for kind, name in workloads]
    return [workload["spec"]["replicas"] for workload in found]


async def awake(world: World, revision: str) -> None:
    """Wait until both roles are to have a pod."""

    async def wakes() -> bool:
        return await counts(world, revision) == [1, 1]

    await until(wakes, "a request has brought pods back")
