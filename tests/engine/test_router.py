"""The router's command."""

from collections.abc import Callable

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.router import router_command


def test_it_sees_the_pods_of_one_revision_only(resource: Callable[..., PDInference]) -> None:
    arguments = list(router_command(resource(), "abc").arguments)
    for role, option in (("parameter", "--prefill-selector"), ("decode", "--decode-selector")):
        start = arguments.index(option) + 1
        assert arguments[start : start + 3] == [
            "pdinference.io/name=llama",
            f"pdinference.io/role={role}",
            "pdinference.io/revision=abc",
        ]


def test_it_looks_in_its_own_namespace(resource: Callable[..., PDInference]) -> None:
    assert "--service-discovery-namespace=models" in router_command(resource(), "abc").arguments


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ({}, ["--policy=round_robin", "--decode-policy=kv_aware"]),
        ({"policy": "least_loaded"}, ["--policy=round_robin", "--decode-policy=kv_aware"]),
        ({"policy": "cache_aware"}, ["--policy=cache_aware", "--decode-policy=kv_aware"]),
        ({"policy": "round_robin"}, ["--policy=round_robin"]),
        ({"policy": "power_of_two"}, ["--policy=power_of_two"]),
        ({"policy": "consistent_hash"}, ["--policy=consistent_hash"]),
    ],
)
def test_the_policy_is_the_users(
    resource: Callable[..., PDInference], spec: dict[str, str], options: list[str]
) -> None:
    arguments = router_command(resource(router=spec), "abc").arguments
    assert [argument for argument in arguments if "policy" in argument] == options
