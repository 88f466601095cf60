"""KV cache tiers in the format of vLLM."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.configuration import kv_transfer_config

Make = Callable[..., PDInference]


def tiers(resource: PDInference, role: Role = Role.DECODE) -> dict[str, Any]:
    _, offloading = kv_transfer_config(resource, role)["kv_connector_extra_config"]["connectors"]
    extra: dict[str, Any] = offloading["kv_connector_extra_config"]
    return extra


def disk_folder(resource: PDInference) -> str:
    (disk,) = tiers(resource)["secondary_tiers"]
    return str(disk["root_dir"])


def test_the_cpu_tier_alone_is_vllms_plain_one(resource: Make) -> None:
    assert tiers(resource(decode={"kvTiers": {"cpu": {"size": "2Gi"}}})) == {
        "cpu_bytes_to_use": 2 * 2**30,
        "offload_prompt_only": False,
    }


def test_the_disk_tier_lies_behind_the_cpu_tier(resource: Make) -> None:
    found = tiers(resource(decode={"kvTiers": {"cpu": {"size": "1.5Gi"}, "disk": {"size": "100Gi"}}}))
    assert found["cpu_bytes_to_use"] == 3 * 2**29
    assert found["spec_name"] == "TieringOffloadingSpec"
    assert [disk["type"] for disk in found["secondary_tiers"]] == ["fs"]


def test_p_keeps_prompts_and_d_what_it_generated_too(resource: Make) -> None:
    cpu = {"kvTiers": {"cpu": {"size": "1Gi"}}}
    r = resource(parameter=cpu, decode=cpu)
    assert tiers(r, Role.PARAMETER)["offload_prompt_only"] is True
    assert tiers(r, Role.DECODE)["offload_prompt_only"] is False


def test_data_parallel_copies_share_the_size(resource: Make) -> None:
    r = resource(decode={"parallelism": {"data": 4}, "kvTiers": {"cpu": {"size": "8Gi"}}})
    assert tiers(r)["cpu_bytes_to_use"] == 2 * 2**30


DISK = {"kvTiers": {"cpu": {"size": "1Gi"}, "disk": {"size": "10Gi"}}}


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"model": {"source": {"path": "/models/other"}}},
        {"model": {"source": {"path": "/models/llama"}, "dtype": "half"}},
        {"engine": {"kvCache": {"dtype": "fp8"}}},
        {"engine": {"args": {"hf-overrides": {"rope_theta": 1}}}},
        {"decode": {**DISK, "parallelism": {"tensor": 2}}},
        {"decode": {**DISK, "args": {"rope-theta": 1}}},
    ],
    ids=str,
)
def test_what_changes_the_content_of_a_block_changes_the_folder(resource: Make, changed: dict[str, Any]) -> None:
    """Otherwise a volume that outlives its pods would hand a model the KV cache of another, unnoticed."""
    assert disk_folder(resource(**{"decode": DISK, **changed})) != disk_folder(resource(decode=DISK))


@pytest.mark.parametrize(
    "changed",
    [
        {"decode": {**DISK, "replicas": 3}},
        {"decode": {"kvTiers": {"cpu": {"size": "2Gi"}, "disk": {"size": "20Gi"}}}},
        {"router": {"replicas": 2}},
        {"rollout": {"drainSeconds": 60}},
        {"model": {"source": {"path": "/models/llama"}, "architecture": {"config": {"hidden_size": 64}}}},
    ],
    ids=str,
)
def test_what_does_not_leaves_it(resource: Make, changed: dict[str, Any]) -> None:
    assert disk_folder(resource(**{"decode": DISK, **changed})) == disk_folder(resource(decode=DISK))
