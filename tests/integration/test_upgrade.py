"""An upgrade from commit 2b1f09f: this operator takes over the existing objects, and P and D go on.

The recordings in `upgrade/` are what the earlier operator wrote; the API server, its controllers and this operator are
real. What may change is in the CHANGELOG: the pods of the router restart once.
"""

from collections.abc import Mapping

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import AUTOSCALER
from tests.integration.calm import QUIET_S, calm
from tests.integration.earlier import Earlier, counts, engine_pods, scale, scale_target, workloads
from tests.integration.operator_process import OperatorProcess
from tests.integration.operators import Operators
from tests.integration.sleeping import is_ready, router, tell
from tests.integration.world import World, until

ROUTER = "llama-router"


def templates(found: Mapping[str, Json]) -> dict[str, Json]:
    """The identity and the pods of each workload of P and D."""
    return {
        name: {"uid": workload["metadata"]["uid"], "template": workload["spec"]["template"]}
        for name, workload in found.items()
        if name != ROUTER
    }


async def hpas(world: World) -> dict[str, Json]:
    items = (await world.api.get(AUTOSCALER.path(world.namespace)))["items"]
    return {item["metadata"]["name"]: item for item in items}


async def taken_over(world: World, operators: Operators, earlier: Earlier) -> OperatorProcess:
    """Start this operator on what the earlier one left; when it is done, all that served serves as before."""
    before, pods, scalers = await workloads(world), await engine_pods(world), await hpas(world)
    mark = world.audit_mark()
    operator = await operators.start()
    await operator.until_looked()
    await calm(world, QUIET_S)
    after = await workloads(world)
    assert templates(after) == templates(before)
    assert await counts(world) == earlier.replicas
    assert await engine_pods(world) == pods
    assert {item["metadata"]["uid"] for item in (await hpas(world)).values()} >= {
        item["metadata"]["uid"] for item in scalers.values()
    }
    deleted = {resource for verb, resource in world.writes(mark) if verb.startswith("delete")}
    assert not deleted & {"statefulsets", "deployments", "pods", "horizontalpodautoscalers"}
    status = await world.status()
    assert (status["revision"], status["servingRevision"]) == (earlier.revision, earlier.serving)
    return operator


async def expect_scalers(world: World, wanted: Mapping[Role, int]) -> None:
    """Expect one HPA for each autoscaled role, whose scale target has the existing replica count."""
    found = await hpas(world)
    assert found.keys() == {f"llama-{role}" for role in wanted}
    for role, count in wanted.items():
        hpa = found[f"llama-{role}"]
        assert names.FIELD_MANAGER in {entry["manager"] for entry in hpa["metadata"]["managedFields"]}
        kind, name = scale_target(hpa)
        target = await world.api.get(f"{kind.path(world.namespace, name)}/scale")
        assert target["spec"]["replicas"] == count


async def expect_quiet_restart(world: World, operators: Operators, operator: OperatorProcess) -> None:
    """Expect that what was taken over needs no further write, at a restart neither."""
    assert operator.stop() == 0
    mark = world.audit_mark()
    second = await operators.start()
    await second.until_looked()
    await calm(world, QUIET_S)
    assert world.writes(mark) == {}


async def becomes(world: World, **replicas: int) -> None:
    """Wait until workloads have these replica counts."""
    wanted = {name.replace("_", "-"): count for name, count in replicas.items()}

    async def scaled() -> bool:
        found = await counts(world)
        return {name: found.get(name) for name in wanted} == wanted

    await until(scaled, f"the pods are {wanted}")


async def test_autoscaled_roles_keep_their_counts_and_follow_the_hpa(world: World, operators: Operators) -> None:
    earlier = Earlier(world, "autoscaled")
    await earlier.install()
    operator = await taken_over(world, operators, earlier)
    await expect_scalers(world, {Role.PARAMETER: 2, Role.DECODE: 3})
    bounds = {
        name: (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) for name, hpa in (await hpas(world)).items()
    }
    assert bounds == {"llama-parameter": (1, 4), "llama-decode": (1, 4)}
    kind, name = scale_target((await hpas(world))["llama-decode"])
    await scale(world, kind, name, 4)
    await becomes(world, **{f"llama-decode-{earlier.serving}": 4, f"llama-parameter-{earlier.serving}": 2})
    await calm(world)
    await expect_quiet_restart(world, operators, operator)


async def test_a_pair_that_sleeps_sleeps_again_once_its_router_was_replaced(world: World, operators: Operators) -> None:
    """A router pod that has never been ready starts the pair, because clients could not reach it otherwise."""
    earlier = Earlier(world, "asleep")
    await earlier.install()
    before = await workloads(world)
    (old,) = await world.pods(Role.ROUTER)
    async with router():
        await tell(world, earlier.serving)
        operator = await operators.start()

        async def replaced() -> bool:
            await earlier.make_ready(earlier.serving)
            return old["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in await world.pods(Role.ROUTER)}

        await until(replaced, "there is another router pod")
        await tell(world, earlier.serving)
        await is_ready(world, "Asleep")
        await calm(world, QUIET_S)
        assert await counts(world) == earlier.replicas
        assert await engine_pods(world) == set()
        assert templates(await workloads(world)) == templates(before)
        await expect_quiet_restart(world, operators, operator)


async def test_a_roll_out_goes_on_with_as_many_pods_as_serve(world: World, operators: Operators) -> None:
    earlier = Earlier(world, "rolling-out")
    await earlier.install()
    await taken_over(world, operators, earlier)
    await expect_scalers(world, {Role.DECODE: 3})
    await earlier.make_ready(earlier.revision)

    async def alone() -> bool:
        await earlier.make_ready(earlier.revision)  # the router's new pods come one after the other
        left = {name for name in await workloads(world) if name != ROUTER}
        return left == {f"llama-{role}-{earlier.revision}" for role in ENGINE_ROLES}

    await until(alone, "the new revision serves and the old one is gone")
    await expect_scalers(world, {Role.DECODE: 3})
    await becomes(world, **{f"llama-decode-{earlier.revision}": 3, f"llama-parameter-{earlier.revision}": 2})


async def test_pipeline_stages_roll_out_once_beside_what_serves(world: World, operators: Operators) -> None:
    """D of an instance with stages runs vLLM's own connector now."""
    earlier = Earlier(world, "several-nodes")
    await earlier.install()
    before, pods = await workloads(world), await engine_pods(world)
    operator = await operators.start()
    await operator.until_looked()
    await calm(world, QUIET_S)
    assert templates(before).items() <= templates(await workloads(world)).items()
    assert pods <= await engine_pods(world)
    status = await world.status()
    revision = status["revision"]
    assert status["servingRevision"] == earlier.serving != revision

    async def alone() -> bool:
        await earlier.make_ready(revision)  # the router's new pods come one after the other
        left = {name for name in await workloads(world) if name != ROUTER}
        return left == {f"llama-{part}-{revision}" for part in ("parameter", "node1", "decode")}

    await until(alone, "the new revision serves and the old one is gone")
    await expect_scalers(world, {Role.PARAMETER: 2})
    kind, name = scale_target((await hpas(world))["llama-parameter"])
    await scale(world, kind, name, 3)
    await becomes(world, **{f"llama-parameter-{revision}": 3, f"llama-node1-{revision}": 3})
    await calm(world)
    await expect_quiet_restart(world, operators, operator)
