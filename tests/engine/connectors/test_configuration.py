"""The KV-transfer configuration of each connector, with tiers and without."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.configuration import kv_transfer_config
from pdinference.engine.router import router_command
from pdinference.engine.vllm import engine_command
from tests.engine.test_vllm import environment

Make = Callable[..., PDInference]

CONNECTORS: dict[str, dict[str, Any]] = {
    "Nixl": {},
    "Mooncake": {"mooncake": {"protocol": "tcp"}},
    "LMCache": {"lmCache": {"remoteUrl": "lm://lmcache.cache.svc:65432"}},
    "SharedStorage": {"sharedStorage": {"claimName": "kv"}},
}
TIERS = {"cpu": {"size": "1Gi"}, "disk": {"size": "10Gi"}}


def through(resource: Make, connector: str, **spec: Any) -> PDInference:
    return resource(transfer={"connector": connector, **CONNECTORS[connector]}, **spec)


@pytest.mark.parametrize(
    ("connector", "name", "extra"),
    [
        ("Nixl", "NixlConnector", None),
        ("Mooncake", "MooncakeConnector", {"mooncake_protocol": "tcp"}),
        ("LMCache", "LMCacheConnectorV1", None),
    ],
)
def test_each_connector_is_vllms(resource: Make, connector: str, name: str, extra: object) -> None:
    for role, kv_role in ((Role.PARAMETER, "kv_producer"), (Role.DECODE, "kv_consumer")):
        config = kv_transfer_config(through(resource, connector), role)
        assert config["kv_connector"] == name
        assert config["kv_role"] == kv_role
        assert config.get("kv_connector_extra_config") == extra


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize(("chosen", "policy"), [(None, "recompute"), ("Recompute", "recompute"), ("Fail", "fail")])
def test_what_a_failed_transfer_means_is_the_users_choice(
    resource: Make, connector: str, chosen: str | None, policy: str
) -> None:
    transfer = {"connector": connector, **CONNECTORS[connector], **({"onFailure": chosen} if chosen else {})}
    config = kv_transfer_config(resource(transfer=transfer), Role.DECODE)
    assert config["kv_load_failure_policy"] == policy


def test_the_policy_holds_with_tiers_too(resource: Make) -> None:
    """vLLM's scheduler reads it from the outer configuration, not from the connectors within."""
    config = kv_transfer_config(resource(transfer={"onFailure": "Fail"}, decode={"kvTiers": TIERS}), Role.DECODE)
    assert (config["kv_connector"], config["kv_load_failure_policy"]) == ("MultiConnector", "fail")


@pytest.mark.parametrize("connector", ["Nixl", "Mooncake"])
def test_tiers_come_after_the_transfer(resource: Make, connector: str) -> None:
    r = through(resource, connector, decode={"kvTiers": TIERS})
    config = kv_transfer_config(r, Role.DECODE)
    transfer, tiers = config["kv_connector_extra_config"]["connectors"]
    assert config["kv_role"] == transfer["kv_role"] == "kv_consumer"
    assert transfer == kv_transfer_config(through(resource, connector), Role.DECODE)
    assert tiers["kv_connector"] == "OffloadingConnector"
    assert kv_transfer_config(r, Role.PARAMETER) == kv_transfer_config(through(resource, connector), Role.PARAMETER)


def test_on_cpu_the_transfer_keeps_its_buffers_there(resource: Make) -> None:
    cpu = {"accelerator": {"type": "CPU"}}
    config = kv_transfer_config(resource(parameter=cpu, decode=cpu | {"kvTiers": TIERS}), Role.DECODE)
    transfer, _ = config["kv_connector_extra_config"]["connectors"]
    assert config["kv_buffer_device"] == transfer["kv_buffer_device"] == "cpu"


def test_mooncake_listens_where_router_and_network_policy_expect_it(resource: Make) -> None:
    found = environment(engine_command(through(resource, "Mooncake"), Role.PARAMETER))
    assert found["VLLM_MOONCAKE_BOOTSTRAP_PORT"] == "8998"
    assert found["VLLM_HOST_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST" not in found


def test_mooncake_uses_the_rdma_devices_of_choice(resource: Make) -> None:
    rdma = {"resourceName": "rdma/ib", "netDevices": ["mlx5_0:1", "mlx5_1"]}
    config = kv_transfer_config(resource(transfer={"connector": "Mooncake", "rdma": rdma}), Role.DECODE)
    assert config["kv_connector_extra_config"] == {"mooncake_protocol": "rdma", "device_name": "mlx5_0,mlx5_1"}


def test_lmcache_finds_its_server_and_the_same_hashes_on_both_sides(resource: Make) -> None:
    for role in (Role.PARAMETER, Role.DECODE):
        found = environment(engine_command(through(resource, "LMCache"), role))
        assert found["LMCACHE_REMOTE_URL"] == "lm://lmcache.cache.svc:65432"
        assert found["PYTHONHASHSEED"] == "0"


def test_shared_storage_goes_without_what_its_connector_cannot(resource: Make) -> None:
    for role in (Role.PARAMETER, Role.DECODE):
        arguments = engine_command(through(resource, "SharedStorage"), role).arguments
        assert {"--no-enable-prefix-caching", "--no-enable-chunked-prefill"} <= set(arguments)
        limits = [argument for argument in arguments if argument.startswith("--max-num-batched-tokens")]
        assert limits == [], "vLLM takes the longest prompt, and refuses less"


@pytest.mark.parametrize(
    ("connector", "word"), [("Nixl", "nixl"), ("Mooncake", "mooncake"), ("LMCache", "nixl"), ("SharedStorage", "nixl")]
)
def test_the_router_hands_over_in_the_connectors_way(resource: Make, connector: str, word: str) -> None:
    assert f"--kv-connector={word}" in router_command(through(resource, connector), "abc").arguments
