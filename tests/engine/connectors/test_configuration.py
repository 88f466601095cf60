"""The KV-transfer configuration of each connector, with tiers and without."""

import pytest

from pdinference.api.names import Role
from pdinference.engine.connectors.configuration import kv_transfer_config
from tests.engine.connectors.transfers import SETTINGS, Make, through

TIERS = {"cpu": {"size": "1Gi"}, "disk": {"size": "10Gi"}}


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


@pytest.mark.parametrize("connector", SETTINGS)
@pytest.mark.parametrize(("chosen", "policy"), [(None, "recompute"), ("Recompute", "recompute"), ("Fail", "fail")])
def test_what_a_failed_transfer_means_is_the_users_choice(
    resource: Make, connector: str, chosen: str | None, policy: str
) -> None:
    transfer = {"connector": connector, **SETTINGS[connector], **({"onFailure": chosen} if chosen else {})}
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
