"""A PDScaler and its HPA; the test writes the status instead of the operator."""

import asyncio
from typing import Any, Final

from pdinference.cluster.client import Json
from pdinference.cluster.kinds import AUTOSCALER, SCALER
from tests.integration.external_metrics import ExternalMetrics
from tests.integration.scaling_world import condition, hpa_looks
from tests.integration.world import World, until

NAME: Final = "llama-decode"
AT_ONCE: Final = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 900, "periodSeconds": 1}]}
ONE_AT_A_TIME: Final = {
    "stabilizationWindowSeconds": 0,
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 4}],
}


class ScaleTarget:
    """A PDScaler and its HPA; the test writes the status in the operator's place."""

    def __init__(self, world: World, metrics: ExternalMetrics) -> None:
        self.world = world
        self._metrics = metrics
        self._path = SCALER.path(world.namespace, NAME)

    async def create(self, recommended: int | None = None) -> None:
        body = {"apiVersion": SCALER.api_version, "kind": SCALER.name, "metadata": {"name": NAME}, "spec": {}}
        await self.world.api.create(SCALER.path(self.world.namespace), body)
        if recommended is not None:
            await self.recommend(recommended)

    async def recommend(self, replicas: int) -> None:
        await self.world.api.merge(self._path, {"spec": {"replicas": replicas}})

    async def report(self, replicas: int, revision: str = "r1") -> None:
        status = {"replicas": replicas, "revision": revision, "selector": f"pdinference.io/revision={revision}"}
        await self.world.api.merge(f"{self._path}/status", {"status": status})

    async def scale(self, name: str = NAME, **spec: Any) -> None:
        """Create an HPA that recommends a pod for each 1 of the metric."""
        target = {"apiVersion": SCALER.api_version, "kind": SCALER.name, "name": NAME}
        external = {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"}}
        body = {
            "apiVersion": AUTOSCALER.api_version,
            "kind": AUTOSCALER.name,
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": 1,
                "maxReplicas": 10,
                "metrics": [{"type": "External", "external": external}],
                "behavior": {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE},
                **spec,
            },
        }
        await self.world.api.create(AUTOSCALER.path(self.world.namespace), body)

    def load(self, total: str) -> None:
        """Set the load of all pods together, in pods that it needs."""
        self._metrics.values["load"] = total

    def no_load(self) -> None:
        self._metrics.values.clear()

    async def recommended(self) -> int | None:
        spec: Json = (await self.world.api.get(self._path))["spec"]
        return spec.get("replicas")

    async def recommends(self, count: int) -> None:
        async def so() -> bool:
            return await self.recommended() == count

        await until(so, f"{count} pods are recommended", within=60)

    async def stays(self, count: int, looks: int = 2) -> None:
        await hpa_looks(self.world, looks)
        assert await self.recommended() == count

    async def steps(self, to: int) -> list[int | None]:
        """The recommendations that come, one after the other, until this one."""
        seen = [await self.recommended()]
        while seen[-1] != to:
            if (latest := await self.recommended()) != seen[-1]:
                seen.append(latest)
            await asyncio.sleep(0.05)
        return seen

    async def hpa(self, name: str = NAME) -> Json:
        return await self.world.get(AUTOSCALER, name) or {}

    async def says(self, type_: str, reason: str, name: str = NAME) -> Json:
        """Wait until the HPA has a condition for this reason."""

        async def said() -> bool:
            return bool(condition(await self.hpa(name), type_).get("reason") == reason)

        await until(said, f"{name} says {type_} {reason}", within=60)
        found: Json = condition(await self.hpa(name), type_)
        return found
