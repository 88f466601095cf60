"""Capacity of the KV cache tiers."""

from typing import Any

import pytest

from tests.memory import configs
from tests.memory.plans import known, plan

GIB = 2**30


def tiers(size: str, **more: Any) -> dict[str, Any]:
    return {"kvTiers": {"cpu": {"size": size}, **more}}


def test_without_tiers_there_are_none() -> None:
    assert plan(configs.LLAMA_8B).tiers == {}


def test_tokens_are_those_of_whole_blocks() -> None:
    made = plan(configs.LLAMA_8B, engine={"kvCache": {"blockSize": 128}}, **tiers("1Gi", disk={"size": "10Gi"}))
    assert known(made.tiers["cpu"].value) == GIB // 131072
    assert known(made.tiers["disk"].value) == 10 * GIB // 131072
    assert "16,777,216 bytes" in made.tiers["cpu"].note


def test_a_block_more_than_fits_is_not_counted() -> None:
    made = plan(configs.LLAMA_8B, engine={"kvCache": {"blockSize": 128}}, **tiers(str(GIB - 1)))
    assert known(made.tiers["cpu"].value) == GIB // 131072 - 128


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_sharding_does_not_change_what_the_node_holds(tensor: int) -> None:
    made = plan(configs.LLAMA_8B, parallelism={"tensor": tensor}, **tiers("1Gi"))
    assert known(made.tiers["cpu"].value) == GIB // 131072


def test_smaller_elements_are_more_tokens() -> None:
    whole = plan(configs.LLAMA_8B, **tiers("1Gi")).tiers["cpu"].value
    assert known(plan(configs.LLAMA_8B, engine={"kvCache": {"dtype": "fp8"}}, **tiers("1Gi")).tiers["cpu"].value) == (
        2 * known(whole)
    )


def test_data_parallel_copies_share_the_memory() -> None:
    made = plan(configs.LLAMA_8B, parallelism={"data": 2}, **tiers("1Gi"))
    assert known(made.tiers["cpu"].value) == GIB // 131072
