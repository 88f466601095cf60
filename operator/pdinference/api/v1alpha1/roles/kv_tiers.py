"""`kvTiers` of a role: storage for KV blocks outside the device's memory.

Tests: tests/api/test_validation.py, tests/integration/test_crd.py
"""

from typing import ClassVar

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1.base import ApiModel, ObjectName, Quantity, Rule
from pdinference.api.v1alpha1.source import AbsolutePath

_SIZED = Rule(
    cel="quantity(string(self.size)).compareTo(quantity('1Mi')) >= 0",
    holds=lambda tier: (quantity(tier.size) or 0) >= 2**20,
    field="size",
    message="Write 1Mi or more, for example 64Gi.",
)


class CPUTier(ApiModel):
    """KV cache in the memory of the node."""

    size: Quantity
    """Size for each pod, over all its ranks. It counts towards the container's memory."""

    rules: ClassVar[tuple[Rule, ...]] = (_SIZED,)


class DiskTier(ApiModel):
    """KV cache on disk. Default: an emptyDir in each pod; the other members select another volume."""

    size: Quantity
    """Maximum disk space. The least recently used blocks are deleted first."""
    persistent_volume_claim: ObjectName | None = None
    """Name of a PersistentVolumeClaim that all pods of the role write to. The cache outlives the pods."""
    host_path: AbsolutePath | None = None
    """Folder on the node that user 65532 can write to. The chart value `allowedHostPaths` must list it with `readOnly:
    false`."""
    storage_class: ObjectName | None = None
    """StorageClass of an ephemeral volume in each pod, for example for local NVMe disks."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _SIZED,
        Rule(
            cel="[has(self.persistentVolumeClaim), has(self.hostPath), has(self.storageClass)].filter(x, x).size() < 2",
            holds=lambda d: [d.persistent_volume_claim, d.host_path, d.storage_class].count(None) >= 2,
            message="Set at most one of persistentVolumeClaim, hostPath and storageClass.",
        ),
    )


class KVTiers(ApiModel):
    """Storage for KV blocks outside the device's memory. vLLM loads blocks from there instead of recomputing them."""

    cpu: CPUTier
    """Tier in the memory of the node."""
    disk: DiskTier | None = None
    """Tier on disk, behind the CPU tier. Default: none."""
