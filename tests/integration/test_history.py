"""The history of valid specs on a real API server."""

import asyncio
import json
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner

from e2e.cluster.build import binary
from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cli import main
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.store import LIMIT, History
from pdinference.cluster.kinds import CONTROLLER_REVISION, DEPLOYMENT, RESOURCE, SCALER
from pdinference.cluster.listing import list_all
from pdinference.cluster.state.records import ResourceRecord, resource_record
from tests.integration.operators import Operators
from tests.integration.world import SERVICE, World
from tests.waiting import until

TEMPLATE = "{% if a < b && c > d %}<|im_start|>\u2028 \U0001f600 é\x7f{% endif %}"
SPEC: Json = {"engine": {"env": {"TEMPLATE": TEMPLATE}}, "decode": {"gpuMemoryUtilization": 0.85, "seed": 2**32 - 1}}


async def stored(world: World, **spec: Any) -> ResourceRecord:
    await world.apply(**spec)
    return resource_record(names.KIND, await world.api.get(RESOURCE.path(world.namespace, "llama")))


async def listed(world: World) -> Cache:
    cache = Cache()
    async for _ in list_all(world.api, cache, [world.namespace], [CONTROLLER_REVISION]):
        pass
    return cache


async def test_any_spec_is_kept_as_it_is_and_its_entry_can_be_raised_later(world: World) -> None:
    """The API server compares the bytes of `data`, which it writes in its own way with each patch."""
    first = await stored(world, **SPEC)
    cache = await listed(world)
    for _ in range(2):  # the second time by what a list says
        history = History(world.api, cache)
        for record in (first, await stored(world, decode={"seed": 1})):
            written, _ = await history.remember(record)
            assert not written.failures
            assert len(written.applied) == 1
        cache = await listed(world)
    broken = await stored(world, engine={"args": {"nonsense": 1}})
    history = History(world.api, cache)
    await history.remember(first)
    assert max(entry.number for _, entry in cache.history.items()) == 5
    found = await history.last_valid(broken)
    assert found is not None
    assert found.spec == first.spec
    assert json.loads(found.spec)["engine"]["env"]["TEMPLATE"] == TEMPLATE


async def pdinference(world: World, *words: str) -> str:
    """A command, and what it printed."""
    place = ["--kubeconfig", str(world.cluster.kubeconfig), "--namespace", world.namespace]
    result = await asyncio.to_thread(CliRunner().invoke, main, [words[0], "llama", *words[1:], *place])
    assert result.exit_code == 0, result.output
    return result.output


async def remembered(world: World, **spec: Any) -> None:
    """An edit that the operator has handled, and that served."""
    record = await stored(world, **spec)
    written, _ = await History(world.api, await listed(world)).remember(record, served=True)
    assert written.settled


async def test_an_edit_is_listed_shown_and_undone_with_the_users_rights(world: World) -> None:
    await remembered(world, engine={"image": "vllm:1"})
    await remembered(world, engine={"image": "vllm:2"}, decode={"replicas": 4})
    assert "engine.image vllm:1 -> vllm:2" in await pdinference(world, "history")
    assert "-    image: vllm:1\n+    image: vllm:2\n" in await pdinference(world, "diff")
    assert "-    image: vllm:2\n+    image: vllm:1\n" in await pdinference(world, "undo", "--dry-run")
    await pdinference(world, "undo")
    body = await world.api.get(RESOURCE.path(world.namespace, "llama"))
    assert (body["spec"]["engine"]["image"], body["spec"]["decode"]["replicas"]) == ("vllm:1", 4)
    assert "pdinference" in {entry["manager"] for entry in body["metadata"]["managedFields"]}


async def test_kubectl_shows_the_history_apart_from_that_of_statefulsets(world: World) -> None:
    for image in ("vllm:1", "vllm:2"):
        await remembered(world, engine={"image": image})
    selector = f"{names.LABEL_SPEC},{names.LABEL_NAME}=llama"
    line = [str(binary("kubectl")), f"--kubeconfig={world.cluster.kubeconfig}", f"--namespace={world.namespace}"]
    line += ["get", "controllerrevisions", f"--selector={selector}", "--sort-by=.revision", "--no-headers"]
    done = await asyncio.to_thread(subprocess.run, line, capture_output=True, text=True, check=True)
    rows = [row.split() for row in done.stdout.splitlines()]
    assert [row[1:3] for row in rows] == [["pdinference.pdinference.io/llama", number] for number in "12"]


async def test_after_undo_the_file_with_the_edit_brings_it_back(world: World) -> None:
    """The behaviour of `kubectl apply` after `pdinference undo`, as in docs/undo.md."""
    for image in ("vllm:1", "vllm:2"):
        await remembered(world, engine={"image": image})
    await pdinference(world, "undo")
    path, edited = RESOURCE.path(world.namespace, "llama"), world.resource(engine={"image": "vllm:2"})
    with pytest.raises(ApiError, match='conflict with "pdinference"'):
        await world.api.apply(path, edited, manager="test", force=False)
    corrected = world.resource(engine={"image": "vllm:1"})
    body = await world.api.apply(path, corrected, manager="test", force=False)
    assert body["spec"]["engine"]["image"] == "vllm:1"


SCALED: Json = {"autoscaling": {"minReplicas": 1, "maxReplicas": 9}}
INVALID: Json = {"engine": {"args": {"nonsense": 1}}, "decode": SCALED}


async def entries(world: World, name: str = "llama") -> list[int]:
    """Numbers in the history, the lowest first."""
    owned = (await listed(world)).history.items()
    return sorted(entry.number for _, entry in owned if entry.owner is not None and entry.owner.name == name)


async def recommend(world: World, replicas: int) -> None:
    """What an HPA does, and the replica count that D has to get."""
    path = SCALER.path(world.namespace, "llama-decode")
    await world.api.merge(f"{path}/scale", {"spec": {"replicas": replicas}})

    async def scaled() -> bool:
        name = names.revision_object("llama", Role.DECODE, (await world.status())["revision"])
        found = await world.get(DEPLOYMENT, name)
        return found is not None and found["spec"]["replicas"] == replicas

    await until(scaled, f"D has {replicas} replicas")


async def kept(world: World, numbers: list[int]) -> None:
    async def found() -> bool:
        return await entries(world) == numbers

    await until(found, f"the history is {numbers}")


async def test_scaling_continues_after_an_invalid_edit_and_undo_reverts_it(world: World, operators: Operators) -> None:
    operator = await operators.start()
    await world.apply(decode=SCALED)
    revision = await world.serving()
    await kept(world, [1])
    await recommend(world, 3)
    await world.apply(**INVALID)
    assert "the last valid spec stays in effect" in await world.refusal_of()
    await recommend(world, 5)
    operator.kill()
    operator = await operators.start()
    await recommend(world, 4)
    await world.delete(SERVICE, "llama")

    async def back() -> bool:
        return await world.get(SERVICE, "llama") is not None

    await until(back, "the Service is back")
    assert "+      nonsense: 1" in await pdinference(world, "diff")
    await pdinference(world, "undo")
    await world.settled()
    assert (await world.condition("Progressing"))["reason"] != "InvalidSpec"
    assert (await world.status())["revision"] == revision
    assert await entries(world) == [1]
    await recommend(world, 2)


async def test_an_edit_of_a_paused_resource_waits_while_it_scales(world: World, operators: Operators) -> None:
    operator = await operators.start()
    await world.apply(decode={"replicas": 1})
    first = await world.serving()
    await kept(world, [1])
    await pdinference(world, "pause")
    await world.apply(decode={"replicas": 1}, engine={"seed": 7})  # server-side, as Argo CD and Flux apply
    await world.says("Progressing", "the stored spec is not rolled out until `kubectl pdi resume llama")
    assert "+    seed: 7" in await pdinference(world, "diff")

    async def scale(replicas: int) -> None:
        path = RESOURCE.path(world.namespace, "llama")
        await world.api.merge(f"{path}/scale", {"spec": {"replicas": replicas}})
        await has(first, replicas)

    async def has(revision: str, replicas: int) -> None:
        async def scaled() -> bool:
            found = await world.get(DEPLOYMENT, names.revision_object("llama", Role.DECODE, revision))
            return found is not None and found["spec"]["replicas"] == replicas

        await until(scaled, f"D of {revision} has {replicas} replicas")

    await scale(3)
    operator.kill()
    await operators.start()
    await scale(2)
    await world.settled()
    assert (await world.status())["revision"] == first
    assert await entries(world) == [1]
    await pdinference(world, "resume")

    async def rolled_out() -> bool:
        return bool((await world.status())["revision"] != first)

    await until(rolled_out, "the edit rolls out")
    await has((await world.status())["revision"], 2)
    await kept(world, [1, 2])


async def test_the_history_is_bounded_and_a_quiet_operator_writes_nothing(world: World, operators: Operators) -> None:
    await operators.start()
    for seed in range(LIMIT + 2):
        await world.apply(engine={"seed": seed})
        await world.settled()
    await kept(world, list(range(3, LIMIT + 3)))
    for replicas in (3, 4):  # as `kubectl scale` does
        await world.apply(engine={"seed": LIMIT + 1}, decode={"replicas": replicas})
        await world.settled()
    await kept(world, [*range(3, LIMIT + 2), LIMIT + 4])


async def test_operators_killed_in_the_middle_leave_one_history(world: World, operators: Operators) -> None:
    for number in range(8):
        await world.apply(f"m{number}")
    for delay in (0.05, 0.2, 0.35):
        operator = await operators.start()
        await asyncio.sleep(delay)  # any moment will do
        operator.kill()
    await operators.start()

    async def complete() -> bool:
        return all([await entries(world, f"m{number}") == [1] for number in range(8)])

    await until(complete, "each resource has one entry")
