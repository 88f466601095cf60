"""KV cache from pipeline stages of P is pushed."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.configuration import kv_transfer_config
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
