"""Values at the edge of what is valid, on a real API server: it accepts what the checks accept, stored and rendered."""

import asyncio
import json
from typing import Any

import pytest

from pdinference.checks import examine
from pdinference.cluster.client import APPLY_TEXT, as_yaml
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, RESOURCE
from pdinference.manifests import RenderSettings, render
from tests.conftest import allowing
from tests.hostile.edges import EDGES, edges_of_autoscalers, edges_of_overlays
from tests.integration.oldest import lacks_field
from tests.integration.world import World

Json = dict[str, Any]
SETTINGS = RenderSettings(policy=allowing("/srv", capabilities=["NET_BIND_SERVICE", "IPC_LOCK"], volumeTypes=["nfs"]))
_AT_ONCE = 8
_KINDS = {"Deployment", "StatefulSet", "Service", "NetworkPolicy", "ResourceClaimTemplate", "HorizontalPodAutoscaler"}
"""Kinds with text of users. Of the others, tests/integration/test_properties.py sends all."""


async def _refusal(world: World, path: str, manifest: Json, slots: asyncio.Semaphore) -> str:
    query = {"fieldManager": "test", "force": "true", "dryRun": "All"}
    async with slots:
        try:
            await world.api._request("PATCH", path, query=query, body=as_yaml(manifest), content_type=APPLY_TEXT)
        except ApiError as error:
            return "" if lacks_field(error) else str(error)
    return ""


async def _found(world: World, specs: dict[str, Json]) -> dict[str, str]:
    """What the API server refuses of the specs that the checks accept, and of what these become."""
    slots = asyncio.Semaphore(_AT_ONCE)
    said: dict[str, str] = {}
    sent: set[str] = set()
    for name, spec in specs.items():
        document = world.resource("llama", **spec)
        resource = examine(document, SETTINGS).resource
        if resource is None:
            continue
        owned = resource.model_copy(update={"metadata": resource.metadata.model_copy(update={"uid": "0"})})
        objects = [(RESOURCE.path(world.namespace, "llama"), document)]
        for manifest in render(owned, SETTINGS).objects:
            if manifest["kind"] in _KINDS:
                kind = CHILD_BY_NAME[manifest["kind"]]
                objects.append((kind.path(world.namespace, manifest["metadata"]["name"]), manifest))
        new = {text: (path, body) for path, body in objects if (text := json.dumps(body)) not in sent}
        sent |= new.keys()
        answers = await asyncio.gather(*(_refusal(world, path, body, slots) for path, body in new.values()))
        if answer := next(filter(None, answers), ""):
            said[name] = answer
    return said


@pytest.mark.parametrize(
    "specs", [EDGES, edges_of_overlays(), edges_of_autoscalers()], ids=["fields", "overlays", "autoscalers"]
)
async def test_what_the_checks_accept_the_api_server_accepts(world: World, specs: dict[str, Json]) -> None:
    assert await _found(world, specs) == {}
