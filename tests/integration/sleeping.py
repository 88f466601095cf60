"""Resources that sleep: a real activator in place of the router's pod, on loopback addresses."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from pdinference.activator.gate import Gate
from pdinference.activator.run import Ports, serving
from pdinference.api.names import ACTIVATOR_STATE_PORT, Role
from pdinference.cluster.kinds import DEPLOYMENT, POD, STATEFUL_SET
from tests.http_server import served
from tests.integration.world import World, until

ADDRESS = f"127.78.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
"""A loopback address of this process alone: the activator's port is the same everywhere."""
SLEEPY: dict[str, Any] = {
    "parameter": {"autoscaling": {"maxReplicas": 2}},
    "decode": {"autoscaling": {"maxReplicas": 2}},
    "autoscaling": {"scaleToZero": {"afterSeconds": 10}},
}


class Router:
    """Plays vllm-router, behind the activator.

    Attributes:
        pair: Whether it has a P and a D pod.
        answered: How many requests it has answered.
    """

    def __init__(self) -> None:
        self.pair = True
        self.answered = 0

    async def readiness(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.pair else 503)

    async def answer(self, _request: web.Request) -> web.Response:
        if not self.pair:
            return web.Response(status=503)
        self.answered += 1
        return web.json_response({"id": f"answer-{self.answered}"})


@asynccontextmanager
async def activator(router: Router, gate: Gate) -> AsyncIterator[str]:
    """Where clients reach it."""
    routes = [
        *(web.get(path, router.readiness) for path in ("/readiness", "/health")),
        web.post("/v1/{path:.*}", router.answer),
    ]
    async with served(routes, host=ADDRESS) as behind:
        places = Ports(0, ACTIVATOR_STATE_PORT, behind, ADDRESS, ADDRESS)
        async with serving(places, gate, drain_seconds=1) as (port, _):
            yield f"http://{ADDRESS}:{port}"


async def tell(world: World, revision: str) -> None:
    """From now on the operator reads the activity from the activator."""
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
