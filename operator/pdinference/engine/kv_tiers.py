"""Tiers of the KV cache as vLLM's OffloadingConnector (vllm/v1/kv_offload), and the side-car that bounds the disk."""

import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from pdinference.api.names import Role
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import PDInference, RoleSpec
from pdinference.api.v1alpha1.engine import EngineOptions
from pdinference.api.v1alpha1.roles.kv_tiers import DiskTier, KVTiers
from pdinference.engine.command import Command, literal

DISK_TIER_MOUNT = "/kv-disk"
"""Where the volume of a disk tier is mounted."""
SHM_MOUNT = "/dev/shm"  # noqa: S108 - a volume of the pod's own
"""Where vLLM keeps the CPU tier."""

_DIGEST_LENGTH = 16


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
            "secondary_tiers": [{"type": "fs", "root_dir": f"{DISK_TIER_MOUNT}/{_same_cache(resource, own)}"}],
        }
    # It both saves and loads, whatever the role in the transfer.
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def _same_cache(resource: PDInference, own: RoleSpec) -> str:
    """Name of the folder of all pods that may read each other's files.

    vLLM itself tells models apart by their path, which two models can share; so everything counts that may change what
    is in a block, and not what is only said of the model. What has its default is left out: an operator that knows more
    fields finds the same folder again.
    """
    parts: dict[str, Any] = {
        "namespace": resource.metadata.namespace,
        "name": resource.metadata.name,
        "model": resource.spec.model.model_dump(
            mode="json", exclude_defaults=True, exclude={"architecture", "inspect"}
        ),
        "engine": resource.spec.engine.model_dump(mode="json", exclude_defaults=True),
        "role": own.model_dump(
            mode="json", exclude_defaults=True, include={*EngineOptions.model_fields, "parallelism"}
        ),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]


def disk_tier_command(disk: DiskTier) -> Command:
    """What the side-car runs: vLLM's disk tier never deletes a file, and a volume that is full gets a pod evicted."""
    arguments = ("-I", "-c", _script(), DISK_TIER_MOUNT, str(tier_bytes(disk.size)), SHM_MOUNT)
    return Command(program=("python3",), arguments=tuple(literal(argument) for argument in arguments))


@cache
def _script() -> str:
    return files("pdinference.engine").joinpath("scripts/bound_disk_tier.py").read_text(encoding="utf-8")
