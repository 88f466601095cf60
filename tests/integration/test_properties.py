"""Specs at random on a real API server: it takes what passes the checks, and every object that this becomes."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import examine
from pdinference.cluster.client import APPLY_TEXT, Json, as_yaml
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, RESOURCE
from pdinference.manifests import RenderSettings, render
from tests.conftest import allowing
from tests.integration.gateway import install_gateway_api
from tests.integration.oldest import lacks_field
from tests.integration.world import World
from tests.properties.specs import SPECS

SETTINGS = RenderSettings(policy=allowing("/srv"))
EXAMPLES = 80


async def dry_run(world: World, path: str, manifest: Json) -> None:
    query = {"fieldManager": "property-test", "force": "true", "dryRun": "All"}
    await world.api._request("PATCH", path, query=query, body=as_yaml(manifest), content_type=APPLY_TEXT)


async def test_what_passes_the_checks_is_accepted_and_so_is_all_that_it_becomes(world: World) -> None:
    await install_gateway_api(world)
    seen: Counter[bool] = Counter()
    for spec in drawn(EXAMPLES):
        document = world.resource("llama", **spec)
        found = examine(document, SETTINGS)
        seen[found.resource is None] += 1
        if found.resource is not None:
            await dry_run(world, RESOURCE.path(world.namespace, "llama"), document)
            await accepted(world, found.resource)
    assert min(seen[True], seen[False]) > EXAMPLES // 10, seen


async def accepted(world: World, resource: PDInference) -> None:
    owned = resource.model_copy(update={"metadata": resource.metadata.model_copy(update={"uid": "0"})})
    for manifest in render(owned, SETTINGS).objects:
        kind = CHILD_BY_NAME[manifest["kind"]]
        try:
            await dry_run(world, kind.path(world.namespace, manifest["metadata"]["name"]), manifest)
        except ApiError as error:
            if not lacks_field(error):
                pytest.fail(f"{error}: {manifest} of {resource.spec}")


def drawn(count: int) -> list[Json]:
    """This number of specs, the same in each run."""
    specs: list[Json] = []

    @settings(max_examples=count, deadline=None, derandomize=True, phases=[Phase.generate], database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.just(None), SPECS)
    def collect(_: None, spec: Json) -> None:
        specs.append(spec)

    collect()
    return specs[:count]
