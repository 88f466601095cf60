"""`pdinference restart`: the operator leaves a restart alone."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from pdinference.cluster.kinds import DEPLOYMENT, STATEFUL_SET
from tests.inference.scaled import PARALLELISM, rests, serving
from tests.inference.world import World

Json = dict[str, Any]
Make = Callable[..., Json]
Run = Callable[..., Result]
ANNOTATION = "kubectl.kubernetes.io/restartedAt"


@pytest.fixture
def restart(run: Run) -> Run:
    return lambda world, *words: run(world, "restart", *words)


def restarted(world: World) -> set[str]:
    """Workloads whose template has the annotation."""
    return {
        path.rsplit("/", 1)[1]
        for path, body in world.api.objects.items()
        if path.startswith((DEPLOYMENT.path("ns"), STATEFUL_SET.path("ns")))
        and ANNOTATION in body["spec"]["template"]["metadata"].get("annotations", {})
    }


@pytest.mark.parametrize("role", ["parameter", "decode", "router"])
async def test_the_operator_leaves_a_restart_alone(document: Make, restart: Run, role: str) -> None:
    world = World(document())
    revision = await serving(world)
    found = await asyncio.to_thread(restart, world, role)
    assert found.exit_code == 0, found.output
    name = "llama-router" if role == "router" else f"llama-{role}-{revision}"
    assert restarted(world) == {name}
    assert f"{name} restarts.\nFollow it with `kubectl pdi status llama -n ns --watch`.\n" in found.output
    world.roll_out()
    await world.reconcile()
    assert await rests(world)
    assert restarted(world) == {name}


async def test_as_json_it_names_the_workloads(document: Make, restart: Run) -> None:
    world = World(document())
    revision = await serving(world)
    found = json.loads((await asyncio.to_thread(restart, world, "decode", "-o", "json")).stdout)
    assert found["workloads"] == [{"kind": "Deployment", "name": f"llama-decode-{revision}"}]
    assert found["restartedAt"].endswith("Z")


async def test_worker_nodes_of_p_restart_with_p(document: Make, restart: Run) -> None:
    world = World(document(parameter={"parallelism": PARALLELISM}))
    revision = await serving(world)
    await asyncio.to_thread(restart, world, "llama", "parameter")
    nodes = ("parameter", "node1", "node2")
    assert restarted(world) == {f"llama-{node}-{revision}" for node in nodes}


async def test_a_role_without_pods_of_its_own_is_not_restarted(document: Make, restart: Run) -> None:
    world = World(document(mode="Aggregated"))
    await serving(world)
    found = await asyncio.to_thread(restart, world, "parameter")
    assert found.exit_code == 1
    assert "llama has no pods of parameter of its own" in found.output
    assert restarted(world) == set()
