"""vLLM's parser accepts the command line of every valid spec, with the meaning of the spec."""

import pytest
from hypothesis import HealthCheck, given, settings

from pdinference.api.names import ENGINE_ROLES
from pdinference.checks import examine
from pdinference.manifests import RenderSettings
from tests.conftest import allowing
from tests.engine.vllm_parser import parsed
from tests.properties.specs import SPECS, Json, resource

pytestmark = pytest.mark.vllm


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(SPECS)
def test_rendered_command_lines_are_accepted(spec: Json) -> None:
    found = examine(resource(spec), RenderSettings(policy=allowing("/srv")))
    if found.resource is None:
        return
    for role in ENGINE_ROLES:
        arguments = parsed(found.resource, role)
        own = found.resource.spec.of(role)
        assert arguments.tensor_parallel_size == own.parallelism.tensor
        assert (arguments.host, arguments.port) == ("0.0.0.0", 8000)  # noqa: S104
        connector = "NixlPushConnector" if found.resource.spec.parameter.parallelism.pipeline > 1 else "NixlConnector"
        assert arguments.kv_transfer_config.kv_connector == connector
        for name, value in {**found.resource.spec.engine.args, **own.args}.items():
            if isinstance(value, str):
                assert getattr(arguments, name.replace("-", "_")) == value
