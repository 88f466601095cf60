"""After kills, cut connections and restarts the state converges, and only the leader writes."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import yaml
from aiohttp import web

from pdinference.api.crd import custom_resource_definition
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import DEPLOYMENT, RESOURCE
from pdinference.runtime.leader import LEASE_NAME
from tests.integration.calm import calm
from tests.integration.front import in_front
from tests.integration.operator_process import OperatorProcess
from tests.integration.operators import Operators
from tests.integration.proxy import Proxy
from tests.integration.world import SERVICE, World
from tests.waiting import until


async def complete(world: World, count: int) -> bool:
    """Every resource has all of its children, and its status."""
    resources = [f"m{number}" for number in range(count)]
    return all([await world.complete(name) and await world.status(name) for name in resources])


async def test_an_operator_that_is_killed_in_the_middle_of_its_work_converges(
    world: World, operators: Operators, chance: random.Random
) -> None:
    for number in range(12):
        await world.apply(f"m{number}")
    for _ in range(4):
        operator = await operators.start()
        await asyncio.sleep(chance.uniform(0.0, 0.4))
        operator.kill()
    await operators.start()
    await until(lambda: complete(world, 12), "all is there")


async def test_a_restart_of_the_api_server_is_survived(world: World, operators: Operators) -> None:
    operator = await operators.start()
    for number in range(4):
        await world.apply(f"m{number}")
    world.cluster.stop_component("kube-apiserver", kill=True)
    await asyncio.sleep(3)
    world.cluster.start_component("kube-apiserver")
    await world.apply("m4")
    await until(lambda: complete(world, 5), "all is there")
    await world.delete(SERVICE, "m0")
    await until(lambda: complete(world, 5), "what was deleted afterwards is back")
    assert operator.running
    assert await operator.healthy()


async def test_what_happened_while_the_watches_were_cut_is_noticed(
    world: World, operators: Operators, tmp_path: Path
) -> None:
    async with Proxy.to(world.cluster.kubeconfig) as proxy:
        await operators.start(kubeconfig=proxy.kubeconfig(world.cluster.kubeconfig, tmp_path))
        await world.apply("m0")
        await until(lambda: complete(world, 1), "all is there")
        proxy.close_all()
        await world.delete(SERVICE, "m0")
        await world.delete(DEPLOYMENT, "m0-router")
        await asyncio.sleep(2)
        proxy.open()
        await until(lambda: complete(world, 1), "what was deleted meanwhile is back")


async def test_what_is_deleted_between_the_first_list_and_the_watch_is_noticed(
    world: World, operators: Operators, tmp_path: Path
) -> None:
    """The operator lists before it works, and Kopf lists once more, before it watches."""
    first = await operators.start()
    await world.apply("m0")
    await until(lambda: complete(world, 1), "all is there")
    assert first.stop() == 0
    lists = 0
    deleted = asyncio.Event()

    async def delete_before_kopf_lists(request: web.Request) -> None:
        nonlocal lists
        if request.path == SERVICE.path(world.namespace) and "watch" not in request.query:
            lists += 1
            if lists == 2:
                await world.delete(SERVICE, "m0")
                deleted.set()

    async with in_front(world.cluster.kubeconfig, tmp_path, delete_before_kopf_lists) as kubeconfig:
        second = await operators.start(kubeconfig=kubeconfig)
        async with asyncio.timeout(60):
            await deleted.wait()
        await until(lambda: complete(world, 1), "what was deleted meanwhile is back")
        second.kill()


async def test_an_edit_right_before_a_status_write_is_not_overlooked(
    world: World, operators: Operators, tmp_path: Path
) -> None:
    """The answer to the write brings it before the watch does."""
    due, edited = asyncio.Event(), asyncio.Event()

    async def edit_before_the_status_is_written(request: web.Request) -> None:
        if request.method == "PATCH" and request.path.endswith("/m0/status") and due.is_set() and not edited.is_set():
            edited.set()
            await world.apply("m0", parameter={"replicas": 2})

    async def lag(request: web.Request) -> None:
        if edited.is_set() and "watch" in request.query and request.path == RESOURCE.path(world.namespace):
            await asyncio.sleep(2)

    async with in_front(
        world.cluster.kubeconfig,
        tmp_path,
        edit_before_the_status_is_written,
        before_answer=lag,
    ) as kubeconfig:
        operator = await operators.start(kubeconfig=kubeconfig)
        await world.apply("m0")
        await until(lambda: complete(world, 1), "all is there")
        await calm(world, 2)
        due.set()
        # The operator writes it anew, and nothing else happens that would make it look once more.
        await world.api.merge(f"{RESOURCE.path(world.namespace, 'm0')}/status", {"status": None})

        async def looked_at() -> bool:
            return (await world.status("m0")).get("observedGeneration") == 2

        await until(looked_at, "the edit is looked at")
        assert (await world.status("m0"))["roles"]["parameter"]["desired"] == 2
        operator.kill()


async def test_of_two_operators_only_the_leader_writes_and_the_other_takes_over(
    world: World, operators: Operators
) -> None:
    first = await operators.start(elect=True)

    async def leads() -> bool:
        return await first.metric("pdinference_is_leader") == 1

    await until(leads, "the first one leads")
    second = await operators.start(elect=True)
    await world.apply("m0")
    await until(lambda: complete(world, 1), "all is there")
    assert await second.metric("pdinference_is_leader") == 0
    assert await second.metric("pdinference_applies_total") == 0
    assert await second.metric("pdinference_status_writes_total") == 0
    first.kill()
    await world.apply("m1")
    await until(lambda: complete(world, 2), "the second one took over", within=120)


async def test_a_leader_that_stops_hands_over_at_once(world: World, operators: Operators) -> None:
    first = await operators.start(elect=True)

    async def leads(operator: OperatorProcess) -> bool:
        return await operator.metric("pdinference_is_leader") == 1

    await until(lambda: leads(first), "the first one leads")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{world.namespace}/leases/{LEASE_NAME}"
    held = (await world.api.get(lease))["spec"]["holderIdentity"]
    second = await operators.start(elect=True)
    assert first.stop() == 0
    # It is free before it would expire: the second one takes it when it next looks.
    assert (await world.api.get(lease))["spec"].get("holderIdentity") != held
    await until(lambda: leads(second), "the second one leads")


async def test_a_leader_that_was_suspended_stops_when_it_wakes(world: World, operators: Operators) -> None:
    first = await operators.start(elect=True)

    async def leads() -> bool:
        return await first.metric("pdinference_is_leader") == 1

    await until(leads, "the first one leads")
    second = await operators.start(elect=True)
    first.suspend()

    async def replaced() -> bool:
        return await second.metric("pdinference_is_leader") == 1

    await until(replaced, "the second one leads", within=120)
    first.resume()
    assert first.wait(timeout=120) != 0


async def test_an_invalid_stored_resource_is_reported_and_its_children_stay(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply("m0")
    await until(lambda: complete(world, 1), "all is there")
    before = await world.children("m0")
    await world.install_crd(_without_rules())
    try:

        async def accepted() -> bool:
            with suppress(ApiError):  # the API server takes a moment to forget the old rules
                await world.apply("m0", parameter={"parallelism": {"tensor": 2}}, decode={"parallelism": {"tensor": 1}})
                return True
            return False

        await until(accepted, "the laxer CRD lets it through")

        async def reported() -> bool:
            return (await world.condition("Progressing", "m0")).get("reason") == "InvalidSpec"

        await until(reported, "the invalid spec is reported")
        message = (await world.condition("Progressing", "m0"))["message"]
        assert "spec.decode.parallelism.tensor" in message
        after = await world.children("m0")
        assert {k: c["metadata"]["generation"] for k, c in after.items() if "generation" in c["metadata"]} == {
            k: c["metadata"]["generation"] for k, c in before.items() if "generation" in c["metadata"]
        }
        assert after.keys() == before.keys()
    finally:
        await world.delete(RESOURCE, "m0")
        await world.install_crd(custom_resource_definition())


def _without_rules() -> Json:
    """The CRD as a version of the operator with fewer rules would have it."""
    crd: Json = yaml.safe_load(yaml.safe_dump(custom_resource_definition()))

    def strip(schema: object) -> None:
        if isinstance(schema, dict):
            schema.pop("x-kubernetes-validations", None)
            for value in schema.values():
                strip(value)
        elif isinstance(schema, list):
            for value in schema:
                strip(value)

    strip(crd)
    return crd
