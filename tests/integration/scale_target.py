"""A PDScaler and its HPA; the test writes the status instead of the operator."""

import asyncio
from typing import Any, Final

from pdinference.cluster.client import Json
from pdinference.cluster.kinds import AUTOSCALER, SCALER
from tests.integration.external_metrics import ExternalMetrics
from tests.integration.scaling_world import QUICK, condition, hpa_looks
from tests.integration.world import World
from tests.waiting import until

NAME: Final = "llama-decode"


async def recommend(world: World, count: int) -> None:
    """What the HPA controller and a person do: write the scale subresource of the scale target."""
    metadata = {"name": NAME, "namespace": world.namespace}
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": count}}
    await world.api.replace(SCALER.path(world.namespace, NAME) + "/scale", body)


async def recommended(world: World, name: str = NAME) -> int | None:
    spec: Json = (await world.api.get(SCALER.path(world.namespace, name)))["spec"]
    return spec.get("replicas")


class ScaleTarget:
    """A PDScaler and its HPA, whose metric has the same name; the test writes the status in the operator's place."""

    def __init__(self, world: World, metrics: ExternalMetrics, name: str = NAME) -> None:
        self.world = world
        self.name = name
        self._metrics = metrics
        self._path = SCALER.path(world.namespace, name)

    async def create(self, recommended: int | None = None, pods: int | None = None) -> None:
        """Create a PDScaler with a recommendation, and a status with this number of pods."""
        body = {"apiVersion": SCALER.api_version, "kind": SCALER.name, "metadata": {"name": self.name}, "spec": {}}
        await self.world.api.create(SCALER.path(self.world.namespace), body)
        if recommended is not None:
            await self.recommend(recommended)
        if pods is not None:
            await self.report(pods)

    async def recommend(self, replicas: int) -> None:
        await self.world.api.merge(self._path, {"spec": {"replicas": replicas}})

    async def report(self, replicas: int, revision: str = "r1") -> None:
        selector = f"pdinference.io/name={self.name},pdinference.io/revision={revision}"
        status = {"replicas": replicas, "revision": revision, "selector": selector}
        await self.world.api.merge(f"{self._path}/status", {"status": status})

    async def scale(self, load: str | None = None, *, name: str = "", **spec: Any) -> None:
        """Create an HPA that recommends a pod for each 1 of the metric."""
        if load is not None:
            self.load(load)
        external = {"metric": {"name": self.name}, "target": {"type": "AverageValue", "averageValue": "1"}}
        body = {
            "apiVersion": AUTOSCALER.api_version,
            "kind": AUTOSCALER.name,
            "metadata": {"name": name or self.name},
            "spec": {
                "scaleTargetRef": {"apiVersion": SCALER.api_version, "kind": SCALER.name, "name": self.name},
                "minReplicas": 1,
                "maxReplicas": 10,
                "metrics": [{"type": "External", "external": external}],
                "behavior": QUICK,
                **spec,
            },
        }
        await self.world.api.create(AUTOSCALER.path(self.world.namespace), body)

    def load(self, total: str) -> None:
        """Set the load of all pods together, in pods that it needs."""
        self._metrics.values[self.name] = total

    async def recommended(self) -> int | None:
        return await recommended(self.world, self.name)

    async def recommends(self, count: int) -> None:
        async def so() -> bool:
            return await self.recommended() == count

        await until(so, f"{count} pods are recommended")

    async def stays(self, count: int, looks: int = 2) -> None:
        await hpa_looks(self.world, looks)
        assert await self.recommended() == count

    async def steps(self, to: int, *, load: str = "") -> list[int | None]:
        """The recommendations that come, one after the other, until this one.

        Args:
            to: The last one.
            load: What the load becomes once the present recommendation is read: the HPA may look at any moment.
        """
        seen = [await self.recommended()]
        if load:
            self.load(load)
        while seen[-1] != to:
            if (latest := await self.recommended()) != seen[-1]:
                seen.append(latest)
            await asyncio.sleep(0.05)
        return seen

    async def says(self, type_: str, reason: str, words: str = "", *, name: str = "") -> None:
        """Wait until the HPA has a condition for this reason, with these words."""

        async def said() -> bool:
            found = condition(await self.world.get(AUTOSCALER, name or self.name) or {}, type_)
            return found.get("reason") == reason and words in found["message"]

        await until(said, f"{name or self.name} says {type_} {reason}")

    async def sees(self) -> None:
        """Wait until the HPA reads the metric."""
        await self.says("ScalingActive", "ValidMetricFound")

    async def hpa(self) -> Json:
        return await self.world.get(AUTOSCALER, self.name) or {}
