"""Back to a CRD that lacks fields which are in use, and forward again, as docs/upgrade.md describes it.

The API server is real. This operator plays the older one, too: it does not see the fields that the CRD lacks.
"""

import asyncio
import json
from copy import deepcopy
from typing import Any

from click.testing import CliRunner, Result

from pdinference.api.crd import custom_resource_definition
from pdinference.cli import main
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import RESOURCE
from tests.integration.calm import QUIET_S, calm
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.waiting import until

_SET = ("spec", "decode", "seed")
_OF_A_DEFAULT = ("spec", "memoryPolicy")
_OF_STATUS = ("status", "url")
"""The operator writes it for every resource."""


def older(*fields: tuple[str, ...]) -> Json:
    """The CRD without these fields."""
    crd = deepcopy(custom_resource_definition())
    for field in fields:
        holder: Any = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for name in field[:-1]:
            holder = holder["properties"][name]
        del holder["properties"][field[-1]]
    return crd


async def pdi(world: World, *words: str) -> Result:
    """What `kubectl pdi` does with the user's credentials."""
    place = ["--kubeconfig", str(world.cluster.kubeconfig), "--namespace", world.namespace]
    return await asyncio.to_thread(CliRunner().invoke, main, [*words, *place])


async def undo(world: World, *options: str) -> Result:
    """What `kubectl pdi undo` does."""
    return await pdi(world, "undo", "llama", *options)


async def expect_of_crds(world: World, words: str) -> None:
    """Expect what `kubectl pdi doctor` says of the CRDs, once the API server has published their schema."""

    async def said() -> bool:
        result = await pdi(world, "doctor", "--output=json")
        (found,) = (one["found"] for one in json.loads(result.stdout)["findings"] if one["subject"] == "CRDs")
        return words in found

    await until(said, f"the doctor to say: {words}")


async def spec(world: World) -> Json:
    found: Json = (await world.api.get(RESOURCE.path(world.namespace, "llama")))["spec"]
    return found


async def expect_served_by(world: World, revision: str) -> None:
    """Expect that requests are answered by this revision, while another one starts."""

    async def another() -> bool:
        return bool((await world.status())["revision"] != revision)

    await until(another, "another revision")
    assert (await world.status())["servingRevision"] == revision
    await world.says("Ready", "True", revision)


async def test_what_serves_goes_on_and_undo_restores_what_the_older_crd_dropped(
    world: World, operators: Operators
) -> None:
    newer = await operators.start()
    await world.apply(decode={"seed": 7})
    first = await world.serving()
    assert "url" in await world.status()
    assert newer.stop() == 0

    await world.install_crd(older(_SET, _OF_A_DEFAULT, _OF_STATUS))
    await expect_of_crds(world, "drops PDInference.spec.decode.seed, PDInference.spec.memoryPolicy, PDInference.status")
    back = await operators.start()
    await expect_served_by(world, first)
    assert "seed" not in (await spec(world))["decode"]
    assert "memoryPolicy" not in await spec(world)
    assert "url" not in await world.status()
    second = await world.serving()
    await calm(world, QUIET_S)  # the part of the status that the CRD lacks is not written again and again
    refused = await undo(world)
    assert "each other spec of the history is the stored one" in refused.output
    named = await undo(world, "--to-revision=1")
    assert (
        "Revision 1 is of another version than the installed CRD, which does not keep decode.seed, memoryPolicy."
        in named.stderr
    )
    assert named.stdout.endswith("already as far as the installed CRD has its fields. Nothing was written.\n")
    assert back.stop() == 0

    await world.install_crd(custom_resource_definition())
    await expect_of_crds(world, "The API server serves")
    await operators.start()
    assert "memoryPolicy" in await spec(world), "so the spec is not that of revision 2"
    assert (await undo(world)).output.endswith("llama has the spec of revision 1 again.\n")
    assert (await spec(world))["decode"]["seed"] == 7
    await expect_served_by(world, second)
    assert (await world.status())["revision"] == first
