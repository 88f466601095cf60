"""Volumes of a pod for KV cache tiers, and for a connector that uses files."""

from typing import Any

from pdinference.api.v1alpha1 import PDInference, RoleSpec
from pdinference.api.v1alpha1.roles.kv_tiers import DiskTier
from pdinference.engine.connectors.registry import connector_of
from pdinference.engine.kv_tiers import DISK_TIER_MOUNT, tier_bytes

Fields = dict[str, Any]

GROUP_ID = 65532
_SHM_GIB = 8
_MIB = 2**20
_DISK = "kv-disk"


def kv_volumes(resource: PDInference, spec: RoleSpec) -> list[Fields]:
    """Volumes for KV cache."""
    volumes = []
    if spec.kv_tiers and spec.kv_tiers.disk:
        volumes.append({"name": _DISK, **_disk_source(spec.kv_tiers.disk)})
    if shared := connector_of(resource.spec).volume(resource.spec.transfer):
        volumes.append({"name": shared.name, "persistentVolumeClaim": {"claimName": shared.claim}})
    return volumes


def kv_mounts(resource: PDInference, spec: RoleSpec) -> list[Fields]:
    """Mounts of the volumes for KV cache."""
    mounts = []
    if spec.kv_tiers and spec.kv_tiers.disk:
        mounts.append({"name": _DISK, "mountPath": DISK_TIER_MOUNT})
    if shared := connector_of(resource.spec).volume(resource.spec.transfer):
        mounts.append({"name": shared.name, "mountPath": shared.path})
    return mounts


def volume_group(volumes: list[Fields]) -> int | None:
    """The fsGroup of volumes. Without it, a new volume belongs to root."""
    return GROUP_ID if any({"persistentVolumeClaim", "ephemeral"} & volume.keys() for volume in volumes) else None


def shared_memory_size(spec: RoleSpec, engines: int = 1) -> str:
    """Limit of /dev/shm, which vLLM uses for the CPU tier and for shared memory of its processes."""
    if spec.kv_tiers is None:
        return f"{_SHM_GIB * engines}Gi"
    return f"{_SHM_GIB * 1024 + _mebibytes(tier_bytes(spec.kv_tiers.cpu.size))}Mi"


def _disk_source(disk: DiskTier) -> Fields:
    if disk.persistent_volume_claim:
        return {"persistentVolumeClaim": {"claimName": disk.persistent_volume_claim}}
    if disk.host_path:
        return {"hostPath": {"path": disk.host_path, "type": "Directory"}}
    if disk.storage_class:
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": disk.storage_class,
            "resources": {"requests": {"storage": disk.size}},
        }
        return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    # The sidecar enforces the size. If it fails, the kubelet evicts the pod before the disk of the node is full. With a
    # limit equal to the size, writes between two checks of the sidecar would cause evictions.
    return {"emptyDir": {"sizeLimit": f"{_mebibytes(2 * tier_bytes(disk.size))}Mi"}}


def _mebibytes(size: int) -> int:
    return -(-size // _MIB)
