"""P and D with a shared GPU budget, under a load that the test sets."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pdinference.api.names import Role
from pdinference.cluster.kinds import POD
from tests.integration.scaling_world import ScalingWorld, condition
from tests.integration.vllm_metrics import Load
from tests.integration.world import until

P, D = Role.PARAMETER, Role.DECODE
QUICK = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 8, "periodSeconds": 1}]}
SCALING = {
    "maxReplicas": 6,
    "targets": {"runningRequests": 10},
    "behavior": {"scaleUp": QUICK, "scaleDown": QUICK},
}
SCALED = {"autoscaling": SCALING}
TWO_GPUS = {**SCALED, "parallelism": {"tensor": 2}}
HOLD = "test.pdinference.io/drains"
PATIENCE_S = 120.0


class Budgeted:
    """Pods that run as soon as they exist and share a load, role by role."""

    def __init__(self, scaling: ScalingWorld) -> None:
        self.scaling = scaling
        self.world = scaling.world
        self.running: dict[Role, int] = {P: 0, D: 0}
        self.drains = False
        """Whether pods that are deleted stay until they are released."""

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
            if "deletionTimestamp" not in pod["metadata"] and HOLD not in pod["metadata"].get("finalizers", ()):
                path = POD.path(self.world.namespace, pod["metadata"]["name"])
                await self.world.api.merge(path, {"metadata": {"finalizers": [HOLD]}})

    async def leaving(self, role: Role) -> list[str]:
        pods = await self.world.pods(role)
        return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]

    async def release(self, role: Role) -> None:
        """Pods that drain have ended."""
        self.drains = False
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

        await until(there, f"there are {p} P and {d} D", within=PATIENCE_S)

    async def recommends(self, role: Role, count: int) -> None:
        """Wait until the HPA recommends so many pods of a role."""

        async def so() -> bool:
            return bool((await self.scaling.scaler(role))["spec"]["replicas"] == count)

        await until(so, f"the HPA recommends {count} {role} pods", within=PATIENCE_S)

    async def says(self, type_: str, reason: str, *words: str) -> None:
        async def said() -> bool:
            found = await self.world.condition(type_)
            return found.get("reason") == reason and all(word in found["message"] for word in words)

        await until(said, f"{type_} says {reason} {words}", within=PATIENCE_S)

    async def sees(self) -> None:
        """Wait until both HPAs see the load."""

        async def seen() -> bool:
            hpas = [await self.scaling.hpa(role) for role in (P, D)]
            return all(condition(hpa, "ScalingActive").get("status") == "True" for hpa in hpas)

        await until(seen, "both HPAs see the load", within=PATIENCE_S)


@asynccontextmanager
async def serving(scaling: ScalingWorld, together: Mapping[str, Any], **spec: Any) -> AsyncIterator[Budgeted]:
    """A pair under a load, whose HPAs see it."""
    pair = Budgeted(scaling)
    await scaling.start()
    await scaling.available()
    await scaling.world.apply(autoscaling=together, **spec)
    await scaling.world.serving()
    playing = asyncio.create_task(pair.play())
    try:
        await pair.sees()
        yield pair
    finally:
        assert not playing.done(), playing.result()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


async def held(pair: Budgeted) -> bool:
    pods = [pod for role in (P, D) for pod in await pair.world.pods(role)]
    return all(HOLD in pod["metadata"].get("finalizers", ()) for pod in pods)
