"""KV cache from pipeline stages of P is pushed."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.configuration import kv_transfer_config
from pdinference.engine.connectors.handover import MEMBER, NixlHandover, Prefill, WrongHandoverError
from pdinference.engine.vllm import engine_command

Make = Callable[..., PDInference]
STAGES = {"parallelism": {"pipeline": 3}}


def test_with_stages_both_roles_run_the_push_connector(resource: Make) -> None:
    r = resource(parameter=STAGES)
    assert {kv_transfer_config(r, role)["kv_connector"] for role in ENGINE_ROLES} == {"NixlPushConnector"}


def test_without_stages_d_pulls(resource: Make) -> None:
    assert {kv_transfer_config(resource(), role)["kv_connector"] for role in ENGINE_ROLES} == {"NixlConnector"}


@pytest.mark.parametrize("spec", [{}, {"parameter": STAGES}, {"transfer": {"connector": "Mooncake"}}])
def test_vllm_has_the_class(resource: Make, spec: dict[str, Any]) -> None:
    for role in ENGINE_ROLES:
        assert engine_command(resource(**spec), role).program[:2] == ("python3", "-m")  # without a launcher of ours
        assert "kv_connector_module_path" not in kv_transfer_config(resource(**spec), role)


def test_with_tiers_the_transfer_is_the_same(resource: Make) -> None:
    r = resource(parameter=STAGES, decode={"kvTiers": {"cpu": {"size": "1Gi"}}})
    transfer, _ = kv_transfer_config(r, Role.DECODE)["kv_connector_extra_config"]["connectors"]
    assert transfer == kv_transfer_config(resource(parameter=STAGES), Role.DECODE)


def answered(host: str) -> dict[str, Any]:
    """A response of P with KV cache at a host."""
    params = {"remote_engine_id": "e", "remote_block_ids": [[1]], "remote_host": host, "remote_port": 5600}
    params |= {"remote_request_id": "r", "tp_size": 1, "do_remote_prefill": True}
    return {MEMBER: params}


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.3"])
def test_d_reads_from_the_node_of_the_rank_that_computed_the_prompt(host: str) -> None:
    prefill = Prefill("t", "10.0.0.1", ("10.0.0.2", "10.0.0.3"))
    params = NixlHandover().to_decode(prefill, answered(host))
    assert params is not None
    assert params["remote_host"] == host


@pytest.mark.parametrize("further", [(), ("10.0.0.2", "10.0.0.3")])
def test_d_reads_from_no_host_but_those_of_the_instance(further: tuple[str, ...]) -> None:
    with pytest.raises(WrongHandoverError, match="another host"):
        NixlHandover().to_decode(Prefill("t", "10.0.0.1", further), answered("10.0.0.9"))
