"""P and D whose pods run as soon as they exist, and whose load a test decides on."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pdinference.api.names import Role
from pdinference.cluster.kinds import POD
from tests.integration import aggregated
from tests.integration.scaling_world import QUICK, ScalingWorld, hpa_looks
from tests.integration.vllm_metrics import Load
from tests.waiting import until

P, D = Role.PARAMETER, Role.DECODE
SCALED = {"autoscaling": {"maxReplicas": 6, "targets": {"runningRequests": 10}, "behavior": QUICK}}
TWO_GPUS = {**SCALED, "parallelism": {"tensor": 2}}
PAIR: dict[str, Any] = {"parameter": SCALED, "decode": TWO_GPUS}
HOLD = "test.pdinference.io/drains"


class Budgeted:
    """Pods that run as soon as they exist and share a load, role by role."""

    def __init__(self, scaling: ScalingWorld) -> None:
        self.scaling = scaling
        self.world = scaling.world
        self.running: dict[Role, int] = {P: 0, D: 0}
        self.drains = False

    async def play(self) -> None:
        """Play kubelets and clients for ever."""
        while True:
            for role, running in self.running.items():
                if self.drains:
                    await self._hold(role)
                pods = await self.scaling.bring_up(Load(), role)
                for pod in pods:
                    pod.load.running = 0
                if pods:
                    pods[0].load.running = running
            await asyncio.sleep(0.2)

    async def _hold(self, role: Role) -> None:
        for pod in await self.world.pods(role):
            held = "deletionTimestamp" in pod["metadata"] or HOLD in pod["metadata"].get("finalizers", ())
            if self.drains and not held:
                path = POD.path(self.world.namespace, pod["metadata"]["name"])
                await self.world.api.merge(path, {"metadata": {"finalizers": [HOLD]}})

    async def leaving(self, role: Role) -> list[str]:
        pods = await self.world.pods(role)
        return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]

    async def drain(self) -> None:
        """From now on, pods that are deleted stay until they are released."""
        self.drains = True

        async def held() -> bool:
            pods = [pod for role in (P, D) for pod in await self.world.pods(role)]
            return all(HOLD in pod["metadata"].get("finalizers", ()) for pod in pods)

        await until(held, "all pods would drain")

    async def release(self, *roles: Role) -> None:
        """Pods that drain have ended."""
        self.drains = False
        for role in roles:
            for pod in await self.world.pods(role):
                path = POD.path(self.world.namespace, pod["metadata"]["name"])
                await self.world.api.merge(path, {"metadata": {"finalizers": None}})

    async def counts(self) -> tuple[int, int]:
        """Pods of P and of D that are not about to go."""
        found = [await self.world.pods(role) for role in (P, D)]
        p, d = (sum("deletionTimestamp" not in pod["metadata"] for pod in pods) for pods in found)
        return p, d

    async def come_to(self, p: int, d: int) -> None:
        async def there() -> bool:
            return await self.counts() == (p, d)

        await until(there, f"there are {p} P and {d} D")

    async def stays(self, p: int, d: int) -> None:
        """Expect the same counts after the HPA controller has looked a few times more."""
        await hpa_looks(self.world, 3)
        assert await self.counts() == (p, d)

    async def recommends(self, role: Role, count: int) -> None:
        """Wait until the HPA recommends so many pods of a role."""

        async def so() -> bool:
            return bool((await self.scaling.scaler(role))["spec"]["replicas"] == count)

        await until(so, f"the HPA recommends {count} {role} pods")


@asynccontextmanager
async def serving(scaling: ScalingWorld, together: Mapping[str, Any], **spec: Any) -> AsyncIterator[Budgeted]:
    """P and D that serve, and HPAs that see their load."""
    budgeted = Budgeted(scaling)
    await scaling.start()
    await aggregated.available(scaling.world)
    await scaling.world.apply(autoscaling=together, **spec)
    await scaling.world.serving()
    playing = asyncio.create_task(budgeted.play())
    try:
        await scaling.sees("True", P, D)
        yield budgeted
    finally:
        assert not playing.done(), playing.result()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
