"""Nodes and devices for the scheduler only: kwok keeps the nodes alive and runs their pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pdinference.cluster.client import ApiServer, Json

NODES = "/api/v1/nodes"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
AMOUNTS = {"cpu": "1k", "memory": "16Ti", "pods": "1000", "ephemeral-storage": "16Ti"}
DRIVER = "gpu.example.com"


@dataclass(frozen=True)
class Device:
    """A device as its driver publishes it."""

    name: str
    product: str = "X100"
    memory: str = "80Gi"
    root: str = "pci0000:00"
    driver: str = DRIVER
    uuid: str = field(default="")

    def published(self, node: str) -> Json:
        """As in a ResourceSlice."""
        texts = {
            f"{self.driver}/productName": self.product,
            f"{self.driver}/uuid": self.uuid or f"GPU-{node}-{self.name}",
            "resource.kubernetes.io/pcieRoot": self.root,
        }
        return {
            "name": self.name,
            "attributes": {name: {"string": text} for name, text in texts.items()},
            "capacity": {f"{self.driver}/memory": {"value": self.memory}},
        }


class Fleet:
    """The nodes of one test. Other tests' pods are not scheduled on them, because they do not select the pool."""

    def __init__(self, api: ApiServer, pool: str) -> None:
        self._api = api
        self.pool = pool
        self.placement = {"nodeSelector": {"pool": pool}}

    async def add(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        amounts: Mapping[str, str] | None = None,
        taints: Iterable[str] = (),
        devices: Iterable[Device] = (),
    ) -> str:
        """Add a node with all that it offers; its full name comes back."""
        full = f"{self.pool}-{name}"
        await self._api.create(NODES, self._node(full, labels or {}, {**AMOUNTS, **(amounts or {})}, taints))
        devices = tuple(devices)
        for driver in {device.driver for device in devices}:
            await self._publish(full, driver, [device for device in devices if device.driver == driver])
        return full

    async def add_class(self, driver: str) -> None:
        """A DeviceClass of the driver's name, with all of its devices."""
        spec = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
        manifest = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": driver}}
        await self._api.apply(f"{DEVICE_CLASSES}/{driver}", {**manifest, "spec": spec}, manager="test")

    async def create(self, path: str, version: str, kind: str, name: str, spec: Json) -> None:
        """Create any other object."""
        await self._api.create(path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})

    def _node(self, name: str, labels: Mapping[str, str], amounts: Mapping[str, str], taints: Iterable[str]) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"pool": self.pool, "kubernetes.io/hostname": name, **labels},
            },
            "spec": {"taints": [{"key": key, "value": "true", "effect": "NoSchedule"} for key in taints]},
            "status": {"capacity": dict(amounts), "allocatable": dict(amounts)},
        }

    async def _publish(self, node: str, driver: str, devices: list[Device]) -> None:
        await self.add_class(driver)
        spec: dict[str, Any] = {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": f"{node}-{driver}", "generation": 1, "resourceSliceCount": 1},
            "devices": [device.published(node) for device in devices],
        }
        await self.create(SLICES, "resource.k8s.io/v1", "ResourceSlice", f"{node}-{driver}", spec)
