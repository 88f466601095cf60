"""An upgrade from commit 2b1f09f: this operator takes over the existing objects, and what serves goes on.

The recordings in `upgrade/` are what the earlier operator wrote; the API server, its controllers and this operator are
real. What may change is in the CHANGELOG: P and D roll out a new revision once, beside the one that serves.
"""

from collections.abc import Mapping

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import AUTOSCALER, RESOURCE
from tests.integration.calm import QUIET_S, calm, expect_quiet_restart
from tests.integration.earlier import Earlier, counts, engine_pods, scale, scale_target, workloads
from tests.integration.operator_process import OperatorProcess
from tests.integration.operators import Operators
from tests.integration.sleeping import is_ready, router, tell
from tests.integration.world import World
from tests.waiting import until

ROUTER = "llama-router"


def templates(found: Mapping[str, Json], revision: str) -> dict[str, Json]:
    """The identity and the pods of each workload of P and D of a revision."""
    return {
        name: {"uid": workload["metadata"]["uid"], "template": workload["spec"]["template"]}
        for name, workload in found.items()
        if name.endswith(f"-{revision}")
    }


async def hpas(world: World) -> dict[str, Json]:
    items = (await world.api.get(AUTOSCALER.path(world.namespace)))["items"]
    return {item["metadata"]["name"]: item for item in items}


async def taken_over(world: World, operators: Operators, earlier: Earlier) -> tuple[OperatorProcess, str]:
    """Start this operator on what the earlier one left. What serves goes on as before, beside a new revision.

    Returns:
        The operator, and the new revision.
    """
    before, pods = await workloads(world), await engine_pods(world, earlier.serving)
    scalers = {item["metadata"]["uid"] for item in (await hpas(world)).values()}
    mark = world.audit_mark()
    operator = await operators.start()
    await operator.until_looked()
    await calm(world, QUIET_S)
    assert templates(await workloads(world), earlier.serving) == templates(before, earlier.serving)
    assert await engine_pods(world, earlier.serving) == pods
    assert {item["metadata"]["uid"] for item in (await hpas(world)).values()} >= scalers
    deleted = {resource for verb, resource in world.writes(mark) if verb.startswith("delete")}
    assert not deleted & {"pods", "horizontalpodautoscalers"}
    status = await world.status()
    revision: str = status["revision"]
    assert status["servingRevision"] == earlier.serving
    assert revision not in {earlier.serving, earlier.revision}
    return operator, revision


async def until_alone(world: World, earlier: Earlier, revision: str) -> None:
    """Let the pods of a revision become ready. Wait until it serves with as many pods, and no other one is left."""
    serving = {name: count for name, count in earlier.replicas.items() if name.endswith((earlier.serving, ROUTER))}

    async def alone() -> bool:
        await earlier.make_ready(revision)  # the router's new pods come one after the other
        found = {name.replace(revision, earlier.serving): n for name, n in (await counts(world)).items()}
        return found == serving and (await world.status())["servingRevision"] == revision

    await until(alone, "the new revision serves and the old one is gone")


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


async def becomes(world: World, **replicas: int) -> None:
    """Wait until workloads have these replica counts."""
    wanted = {name.replace("_", "-"): count for name, count in replicas.items()}

    async def scaled() -> bool:
        found = await counts(world)
        return {name: found.get(name) for name in wanted} == wanted

    await until(scaled, f"the pods are {wanted}")


async def test_autoscaled_roles_keep_their_counts_and_follow_the_hpa(world: World, operators: Operators) -> None:
    """The new revision waits for a GPU budget that has room for both."""
    earlier = Earlier(world, "autoscaled")
    await earlier.install()
    operator, revision = await taken_over(world, operators, earlier)
    await expect_scalers(world, {Role.PARAMETER: 2, Role.DECODE: 3})
    bounds = {
        name: (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) for name, hpa in (await hpas(world)).items()
    }
    assert bounds == {"llama-parameter": (1, 4), "llama-decode": (1, 4)}
    await world.says("Progressing", "GpuBudget", "Raise it to 10")
    await world.api.merge(RESOURCE.path(world.namespace, "llama"), {"spec": {"autoscaling": {"gpuBudget": 10}}})
    await until_alone(world, earlier, revision)
    await expect_scalers(world, {Role.PARAMETER: 2, Role.DECODE: 3})
    kind, name = scale_target((await hpas(world))["llama-decode"])
    await scale(world, kind, name, 4)
    await becomes(world, **{f"llama-decode-{revision}": 4, f"llama-parameter-{revision}": 2})
    await expect_quiet_restart(world, operators, operator)


async def test_a_pair_that_sleeps_sleeps_again_once_the_new_revision_has_started(
    world: World, operators: Operators
) -> None:
    """A router pod that has never been ready starts P and D, because clients could not reach them otherwise."""
    earlier = Earlier(world, "asleep")
    await earlier.install()
    async with router():
        await tell(world, earlier.serving)
        operator = await operators.start()
        await operator.until_looked()
        revision = (await world.status())["revision"]
        assert revision != earlier.serving

        async def serves() -> bool:
            await earlier.make_ready(revision)
            return bool((await world.status())["servingRevision"] == revision)

        await until(serves, "the new revision serves")
        await tell(world, revision)
        await is_ready(world, "Asleep")
        await calm(world, QUIET_S)
        assert await counts(world) == {
            name.replace(earlier.serving, revision): n for name, n in earlier.replicas.items()
        }
        assert await engine_pods(world) == set()
        await expect_quiet_restart(world, operators, operator)


async def test_a_roll_out_goes_on_with_as_many_pods_as_serve(world: World, operators: Operators) -> None:
    """The revision that the earlier operator was rolling out makes way for the one of this operator."""
    earlier = Earlier(world, "rolling-out")
    await earlier.install()
    _, revision = await taken_over(world, operators, earlier)
    await expect_scalers(world, {Role.DECODE: 3})
    await until_alone(world, earlier, revision)
    await expect_scalers(world, {Role.DECODE: 3})
    await becomes(world, **{f"llama-decode-{revision}": 3, f"llama-parameter-{revision}": 2})


async def test_an_instance_of_several_nodes_rolls_out_whole(world: World, operators: Operators) -> None:
    earlier = Earlier(world, "several-nodes")
    await earlier.install()
    operator, revision = await taken_over(world, operators, earlier)
    await until_alone(world, earlier, revision)
    await expect_scalers(world, {Role.PARAMETER: 2})
    kind, name = scale_target((await hpas(world))["llama-parameter"])
    await scale(world, kind, name, 3)
    await becomes(world, **{f"llama-parameter-{revision}": 3, f"llama-node1-{revision}": 3})
    await expect_quiet_restart(world, operators, operator)
