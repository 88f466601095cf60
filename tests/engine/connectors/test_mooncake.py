"""Mooncake: its bootstrap server and its devices."""

from pdinference.api.names import Role
from pdinference.engine.connectors.configuration import kv_transfer_config
from pdinference.engine.vllm import engine_command
from tests.engine.commands import environment
from tests.engine.connectors.transfers import Make, through


def test_mooncake_listens_where_router_and_network_policy_expect_it(resource: Make) -> None:
    found = environment(engine_command(through(resource, "Mooncake"), Role.PARAMETER))
    assert found["VLLM_MOONCAKE_BOOTSTRAP_PORT"] == "8998"
    assert found["VLLM_HOST_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST" not in found


def test_mooncake_uses_the_rdma_devices_of_choice(resource: Make) -> None:
    rdma = {"resourceName": "rdma/ib", "netDevices": ["mlx5_0:1", "mlx5_1"]}
    config = kv_transfer_config(resource(transfer={"connector": "Mooncake", "rdma": rdma}), Role.DECODE)
    assert config["kv_connector_extra_config"] == {"mooncake_protocol": "rdma", "device_name": "mlx5_0,mlx5_1"}
