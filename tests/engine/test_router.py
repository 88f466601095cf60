"""The router's command."""

from collections.abc import Callable

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


def test_the_policy_is_the_users(resource: Callable[..., PDInference]) -> None:
    assert "--policy=cache_aware" in router_command(resource(router={"policy": "cache_aware"}), "abc").arguments
