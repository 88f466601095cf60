"""Measurements of vLLM beside the plan."""

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PlanStatus, RoleMemory
from pdinference.memory.observed import KvCache, compared

PLAN = PlanStatus(
    parameter=RoleMemory(kv_capacity_tokens=12_800, kv_blocks=100),
    decode=RoleMemory(kv_capacity_tokens=12_800, kv_blocks=100, weights_bytes=7),
)


def decode(made: PlanStatus | None) -> RoleMemory:
    assert made is not None
    assert made.decode is not None
    return made.decode


def test_the_smallest_cache_of_the_pods_is_compared() -> None:
    found = decode(compared(PLAN, {Role.DECODE: [KvCache(98, 128), KvCache(80, 128)]}, None))
    assert (found.observed_kv_capacity_tokens, found.kv_capacity_error_percent) == (10_240, 25.0)
    assert found.weights_bytes == 7


def test_with_windows_a_block_holds_fewer_tokens_than_its_size_says() -> None:
    plan = PlanStatus(decode=RoleMemory(kv_capacity_tokens=6_400, kv_blocks=100))
    found = decode(compared(plan, {Role.DECODE: [KvCache(100, 128)]}, None))
    assert (found.observed_kv_capacity_tokens, found.kv_capacity_error_percent) == (6_400, 0.0)


def test_measured_values_are_reported_without_a_plan() -> None:
    found = decode(compared(None, {Role.DECODE: [KvCache(24, 128)]}, None))
    assert found == RoleMemory(observed_kv_capacity_tokens=3_072)


def test_reported_values_stay_until_pods_report_again() -> None:
    known = compared(PLAN, {Role.DECODE: [KvCache(80, 128)]}, None)
    assert compared(PLAN, {}, known) == known
    assert decode(compared(PLAN, {Role.DECODE: [KvCache(100, 128)]}, known)).kv_capacity_error_percent == 0.0


def test_nothing_known_is_nothing_said() -> None:
    assert compared(None, {}, None) is None
    assert decode(compared(PLAN, {}, None)).observed_kv_capacity_tokens is None


def test_the_cache_of_a_rank_is_compared() -> None:
    """vLLM reports the sum of all data-parallel ranks, and the plan is about one of them."""
    found = decode(compared(PLAN, {Role.DECODE: [KvCache(8 * 100, 128, ranks=8)]}, None))
    assert (found.observed_kv_capacity_tokens, found.kv_capacity_error_percent) == (12_800, 0.0)
