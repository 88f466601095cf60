"""KV cache tiers with vLLM's OffloadingConnector (vllm/v1/kv_offload), and the sidecar that limits the disk tier."""

from typing import Any, Final

from pdinference.api.names import Role
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import PDInference, RoleSpec
from pdinference.api.v1alpha1.engine import EngineOptions
from pdinference.api.v1alpha1.roles.kv_tiers import DiskTier, KVTiers
from pdinference.engine.cache_folder import cache_folder
from pdinference.engine.command import Command, literal, script_program

DISK_TIER_MOUNT = "/kv-disk"
"""Mount path of the disk tier's volume."""
SHM_MOUNT = "/dev/shm"  # noqa: S108 - a volume of the pod
"""Folder in which vLLM stores the CPU tier."""
_BOUND: Final = "bound_disk_tier"


def tier_bytes(size: str) -> int:
    """A valid quantity in bytes."""
    return int(quantity(size) or 0)


def offloading_config(resource: PDInference, role: Role, tiers: KVTiers) -> dict[str, Any]:
    """The connector that copies KV blocks to the tiers, as a member of a MultiConnector."""
    own = resource.spec.of(role)
    extra: dict[str, Any] = {
        # For each data-parallel replica, and for all its ranks together.
        "cpu_bytes_to_use": tier_bytes(tiers.cpu.size) // own.parallelism.data,
        # P generates one token only. D stores generated tokens, which are lost when a request is preempted.
        "offload_prompt_only": role is Role.PARAMETER,
    }
    if tiers.disk is not None:
        extra |= {
            "spec_name": "TieringOffloadingSpec",
            "secondary_tiers": [{"type": "fs", "root_dir": f"{DISK_TIER_MOUNT}/{_folder(resource, own)}"}],
        }
    # It saves and loads in both roles.
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def _folder(resource: PDInference, own: RoleSpec) -> str:
    """Name of the folder that the pods of a role share. P and D store different blocks."""
    options = {*EngineOptions.model_fields, "parallelism"}
    return cache_folder(resource, {"role": own.model_dump(mode="json", exclude_defaults=True, include=options)})


def disk_tier_command(disk: DiskTier) -> Command:
    """Command of the sidecar that deletes old files. vLLM deletes none, and a full volume causes eviction."""
    arguments = (DISK_TIER_MOUNT, str(tier_bytes(disk.size)), SHM_MOUNT)
    return Command(
        program=script_program(_BOUND), arguments=tuple(literal(argument) for argument in arguments), scripts=(_BOUND,)
    )
