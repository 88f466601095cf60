"""vLLM's parser accepts the command line of every valid spec, with the meaning of the spec."""

import pytest
from hypothesis import HealthCheck, given, settings

from pdinference.api.v1alpha1 import Spec
from pdinference.checks import examine
from pdinference.manifests import RenderSettings
from tests.conftest import allowing
from tests.engine.vllm_parser import parsed
from tests.properties.specs import SPECS, Json, resource

pytestmark = pytest.mark.vllm


def connector(spec: Spec) -> str | None:
    """The class that moves KV cache; the specs have no tiers."""
    if not spec.transfers_kv:
        return None
    return "NixlPushConnector" if spec.parameter.parallelism.pipeline > 1 else "NixlConnector"


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(SPECS)
def test_rendered_command_lines_are_accepted(spec: Json) -> None:
    found = examine(resource(spec), RenderSettings(policy=allowing("/srv")))
    if found.resource is None:
        return
    valid = found.resource.spec
    for role in valid.engine_roles:
        arguments = parsed(found.resource, role)
        own = valid.of(role)
        assert arguments.tensor_parallel_size == own.parallelism.tensor
        assert (arguments.host, arguments.port) == ("0.0.0.0", 8000)  # noqa: S104
        transfer = arguments.kv_transfer_config
        assert (transfer.kv_connector if transfer else None) == connector(valid)
        for name, value in {**valid.engine.args, **own.args}.items():
            if isinstance(value, str):
                assert getattr(arguments, name.replace("-", "_")) == value
