"""`kvTiers` of a role: where the KV cache goes when the device's memory is full."""

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
    """KV cache in the node's memory."""

    size: Quantity
    """Memory of each pod, for all its ranks together. Taken at start; counts to the container's memory."""

    rules: ClassVar[tuple[Rule, ...]] = (_SIZED,)


class DiskTier(ApiModel):
    """KV cache on disk: an emptyDir of each pod, or what one of the other members says."""

    size: Quantity
    """Most disk space of the volume; what was not used for longest is deleted."""
    persistent_volume_claim: ObjectName | None = None
    """Name of a PersistentVolumeClaim that all pods of the role write to; the cache survives them."""
    host_path: AbsolutePath | None = None
    """Folder of the node that user 65532 may write to; the cache survives the pods. Needs it in
    the chart's `allowedHostPaths`, with `readOnly: false`."""
    storage_class: ObjectName | None = None
    """StorageClass of an ephemeral volume for each pod, for example of local NVMe disks."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _SIZED,
        Rule(
            cel="[has(self.persistentVolumeClaim), has(self.hostPath), has(self.storageClass)].filter(x, x).size() < 2",
            holds=lambda d: [d.persistent_volume_claim, d.host_path, d.storage_class].count(None) >= 2,
            message="Set at most one of persistentVolumeClaim, hostPath and storageClass.",
        ),
    )


class KVTiers(ApiModel):
    """Copies of KV blocks outside the device's memory, read back instead of being computed again."""

    cpu: CPUTier
    """The node's memory."""
    disk: DiskTier | None = None
    """Disk, filled and read through the CPU tier. Default: none."""
