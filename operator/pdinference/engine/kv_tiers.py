"""Tiers of the KV cache as vLLM's OffloadingConnector (vllm/v1/kv_offload), and the side-car that bounds the disk."""

from functools import cache
from importlib.resources import files
from typing import Any

from pdinference.api.names import Role
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import PDInference, RoleSpec
from pdinference.api.v1alpha1.engine import EngineOptions
from pdinference.api.v1alpha1.roles.kv_tiers import DiskTier, KVTiers
from pdinference.engine.cache_folder import cache_folder
from pdinference.engine.command import Command, literal

DISK_TIER_MOUNT = "/kv-disk"
"""Where the volume of a disk tier is mounted."""
SHM_MOUNT = "/dev/shm"  # noqa: S108 - a volume of the pod's own
"""Where vLLM keeps the CPU tier."""


def tier_bytes(size: str) -> int:
    """A valid quantity in whole bytes."""
    return int(quantity(size) or 0)


def offloading_config(resource: PDInference, role: Role, tiers: KVTiers) -> dict[str, Any]:
    """The connector that copies KV blocks to the tiers, as one of several in a MultiConnector."""
    own = resource.spec.of(role)
    extra: dict[str, Any] = {
        # Of each data-parallel copy of the model, and all its ranks together.
        "cpu_bytes_to_use": tier_bytes(tiers.cpu.size) // own.parallelism.data,
        # P's answers are one token long. D's are what would be lost when a request makes room for others.
        "offload_prompt_only": role is Role.PARAMETER,
    }
    if tiers.disk is not None:
        extra |= {
            "spec_name": "TieringOffloadingSpec",
            "secondary_tiers": [{"type": "fs", "root_dir": f"{DISK_TIER_MOUNT}/{_folder(resource, own)}"}],
        }
    # It both saves and loads, whatever the role in the transfer.
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def _folder(resource: PDInference, own: RoleSpec) -> str:
    """Pods of one role share it: P and D keep different blocks."""
    options = {*EngineOptions.model_fields, "parallelism"}
    return cache_folder(resource, {"role": own.model_dump(mode="json", exclude_defaults=True, include=options)})


def disk_tier_command(disk: DiskTier) -> Command:
    """What the side-car runs: vLLM's disk tier never deletes a file, and a volume that is full gets a pod evicted."""
    arguments = ("-I", "-c", _script(), DISK_TIER_MOUNT, str(tier_bytes(disk.size)), SHM_MOUNT)
    return Command(program=("python3",), arguments=tuple(literal(argument) for argument in arguments))


@cache
def _script() -> str:
    return files("pdinference.engine").joinpath("scripts/bound_disk_tier.py").read_text(encoding="utf-8")
