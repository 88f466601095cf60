"""A resource and the HPA of its D pods, as the cache has them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pdinference.api import names
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import AUTOSCALER, RESOURCE, SCALED_OBJECT, Kind, Owner
from pdinference.manifests.children import owner_reference

OWNER = Owner("ns", "llama")


class Autoscaled:
    """Watch events. Each object is newer than the previous ones."""

    def __init__(self) -> None:
        self.cache = Cache()
        self._version = 0

    def resource(
        self, *, source: str | None = None, more: Mapping[str, Any] = MappingProxyType({}), **decode: Any
    ) -> None:
        metadata = self.metadata("llama")
        spec = {"model": {"source": {"path": "/m"}}, "decode": decode, **more}
        spec |= {"autoscaling": {"source": source}} if source else {}
        body = {"metadata": {**metadata, "generation": self._version}, "spec": spec}
        self.cache.observe(RESOURCE, body, deleted=False)

    def hpa(self, *metrics: dict[str, Any]) -> None:
        self._observe(AUTOSCALER, metrics=metrics, maxReplicas=3)

    def scaled_object(self, *triggers: dict[str, Any]) -> None:
        self._observe(SCALED_OBJECT, triggers=triggers, maxReplicaCount=3)

    def _observe(self, kind: Kind, **spec: Any) -> None:
        owner = owner_reference(names.KIND, "llama", "uid-llama")
        metadata = {**self.metadata("llama-decode"), "ownerReferences": [owner]}
        spec["scaleTargetRef"] = {"name": "llama-decode"}
        self.cache.observe(kind, {"metadata": metadata, "spec": spec}, deleted=False)

    def metadata(self, name: str) -> dict[str, Any]:
        self._version += 1
        return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(self._version)}
