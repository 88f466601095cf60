"""The operator's promises, on a real API server and with the real controllers of Kubernetes."""

import asyncio
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import (
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    RESOURCE,
    ROLE_BINDING,
    STATEFUL_SET,
)
from tests.integration.calm import QUIET_S, calm, expect_quiet_restart
from tests.integration.operator_process import RECONCILED
from tests.integration.operators import Operators
from tests.integration.world import SERVICE, SERVICE_ACCOUNT, World
from tests.waiting import until


async def test_a_resource_becomes_all_its_children(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    await world.settled()
    await until(world.complete, "all children are there")
    children = await world.children()
    revision = (await world.status())["revision"]
    assert {
        ("StatefulSet", f"llama-parameter-{revision}"),
        ("Deployment", f"llama-decode-{revision}"),
        ("Deployment", "llama-router"),
        ("Service", "llama"),
        ("Service", "llama-parameter"),
        ("ServiceAccount", "llama-router"),
        ("Role", "llama-router"),
        ("RoleBinding", "llama-router"),
    } <= children.keys()
    uid = (await world.api.get(RESOURCE.path(world.namespace, "llama")))["metadata"]["uid"]
    for child in children.values():
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True)


async def test_an_object_of_somebody_else_is_left_alone(world: World, operators: Operators) -> None:
    """Children are created by an apply that must not meet an object; the API server refuses it when it does."""
    path = SERVICE.path(world.namespace, "llama")
    service = {"metadata": {"name": "llama"}, "spec": {"ports": [{"port": 1}]}}
    created = await world.api.create(SERVICE.path(world.namespace), service)
    await operators.start()
    await world.apply()

    async def reported() -> bool:
        return any(c["reason"] == "NameConflict" for c in (await world.status()).get("conditions", ()))

    await until(reported, "the status names the conflict")
    assert await world.api.get(path) == created


async def test_nothing_is_written_or_read_when_nothing_changes(world: World, operators: Operators) -> None:
    operator = await operators.start()
    await world.apply()
    await world.serving()
    await calm(world, QUIET_S)
    status, mark = await world.status(), world.audit_mark()
    before = await operator.metric(RECONCILED)
    body = {"metadata": {"annotations": {"touched": "yes"}}}
    path = DEPLOYMENT.path(world.namespace, "llama-router")
    await world.api.merge(path, body)  # somebody else's annotation: worth a look, not a write
    await operator.until_looked(before)
    await asyncio.sleep(QUIET_S)
    assert world.requests(mark) == {}, f"the status was {status}, and is {await world.status()}"


async def test_a_restart_writes_nothing(world: World, operators: Operators) -> None:
    operator = await operators.start()
    await world.apply()
    await world.serving()
    await expect_quiet_restart(world, operators, operator)


async def test_what_somebody_deletes_comes_back(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    await world.settled()
    before = await world.children()
    for kind, name in ((SERVICE, "llama"), (SERVICE_ACCOUNT, "llama-router"), (DEPLOYMENT, "llama-router")):
        await world.delete(kind, name)

    async def back() -> bool:
        now = await world.children()
        renewed = {key for key in now if now[key]["metadata"]["uid"] != before[key]["metadata"]["uid"]}
        return now.keys() == before.keys() and len(renewed) == 3

    await until(back, "all children are back")


async def test_what_somebody_edits_is_put_right(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    await world.settled()
    decode = f"llama-decode-{(await world.status())['revision']}"
    await world.api.merge(DEPLOYMENT.path(world.namespace, decode), {"spec": {"replicas": 5}})
    unlabelled = {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}}
    await world.api.merge(SERVICE.path(world.namespace, "llama"), unlabelled)

    async def right() -> bool:
        deployment = await world.get(DEPLOYMENT, decode) or {}
        service = await world.get(SERVICE, "llama") or {}
        labels: dict[str, str] = service["metadata"]["labels"]
        scaled_back: bool = deployment["spec"]["replicas"] == 1
        return scaled_back and labels.get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER

    await until(right, "the edits are undone")


async def test_a_strangers_object_is_not_adopted(world: World, operators: Operators) -> None:
    stranger = {"metadata": {"name": "llama"}, "spec": {"ports": [{"port": 5432}]}}
    await world.api.create(SERVICE.path(world.namespace), stranger)
    await operators.start()
    await world.apply()

    async def conflict() -> bool:
        return (await world.condition("Progressing")).get("reason") == "NameConflict"

    await until(conflict, "the conflict is reported")
    service = await world.get(SERVICE, "llama")
    assert service is not None
    assert "ownerReferences" not in service["metadata"]
    assert "kubectl delete" in (await world.condition("Progressing"))["message"]
    await world.delete(SERVICE, "llama")

    async def ours() -> bool:
        return "ownerReferences" in ((await world.get(SERVICE, "llama")) or {"metadata": {}})["metadata"]

    await until(ours, "the Service is made once the stranger is gone")
    await until(lambda: _rolling(world), "the conflict is over")


async def test_a_router_never_runs_under_a_strangers_account(world: World, operators: Operators) -> None:
    await world.api.create(SERVICE_ACCOUNT.path(world.namespace), {"metadata": {"name": "llama-router"}})
    await operators.start()
    await world.apply()

    async def told() -> bool:
        return "Deployment llama-router" in (await world.condition("Progressing")).get("message", "")

    await until(told, "the condition names the Deployment that is not applied")
    assert (await world.condition("Progressing"))["reason"] == "NameConflict"
    assert await world.get(DEPLOYMENT, "llama-router") is None
    assert await world.get(ROLE_BINDING, "llama-router") is None
    await world.delete(SERVICE_ACCOUNT, "llama-router")
    await until(world.complete, "everything is applied once the stranger is gone")


async def _rolling(world: World) -> bool:
    return (await world.condition("Progressing")).get("reason") == "RollingOut"


async def test_ready_follows_the_pods(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    await world.settled()
    assert (await world.condition("Ready"))["status"] == "False"

    async def explained() -> bool:
        return "fits on no node" in (await world.condition("ParameterReady"))["message"]

    await until(explained, "the scheduler is quoted")
    await world.serving()
    for type_ in ("Ready", "ParameterReady", "DecodeReady", "RouterReady"):

        async def true(type_: str = type_) -> bool:
            return (await world.condition(type_)).get("status") == "True"

        await until(true, f"{type_} is true")
    assert (await world.status())["roles"]["decode"]["summary"] == "1/1"
    scale = await world.api.get(RESOURCE.path(world.namespace, "llama") + "/scale")
    assert scale["status"]["replicas"] == 1


async def test_the_old_pair_goes_only_after_the_router_has_moved(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    first = await world.serving()
    await world.apply(engine={"env": {"GREEN": "1"}})
    await world.settled()
    second = (await world.status())["revision"]
    assert first != second
    await calm(world)
    assert await world.get(STATEFUL_SET, f"llama-parameter-{first}")
    assert await world.get(DEPLOYMENT, f"llama-decode-{first}")
    assert (await world.condition("Ready"))["status"] == "True"
    assert f"{first} keeps answering" in (await world.condition("Progressing"))["message"]
    assert await world.serving() == second

    async def freed() -> bool:
        return not await world.get(STATEFUL_SET, f"llama-parameter-{first}") and not await world.pods(
            Role.DECODE, first
        )

    await until(freed, "the old pair is gone")
    assert (await world.condition("Progressing"))["reason"] == "RolloutComplete"


async def test_a_change_of_the_mode_moves_traffic_and_leaves_nothing(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    first = await world.serving()

    async def of_p() -> list[str]:
        """Names of P's objects, and of the kinds that all its revisions share."""
        found = [
            (kind, await world.get(kind, name))
            for kind, name in (
                (STATEFUL_SET, f"llama-parameter-{first}"),
                (SERVICE, "llama-parameter"),
                (NETWORK_POLICY, "llama-parameter"),
                (DISRUPTION_BUDGET, "llama-parameter"),
            )
        ]
        return [kind.name for kind, there in found if there]

    await world.apply(mode="Aggregated")
    await world.settled()
    await calm(world)
    assert len(await of_p()) == 4, "P serves until the router has moved"
    assert await world.serving((Role.DECODE, Role.ROUTER)) != first

    async def freed() -> bool:
        return not await of_p() and not await world.pods(Role.PARAMETER, first)

    await until(freed, "P and its objects are gone")
    assert (await world.condition("ParameterReady"))["reason"] == "Aggregated"
    assert (await world.condition("Progressing"))["reason"] == "RolloutComplete"
    await world.apply()
    assert await world.serving() == first
    assert len(await of_p()) == 4


async def test_a_stuck_revision_is_freed_by_the_next_edit(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    first = await world.serving()
    await world.apply(engine={"env": {"BAD": "1"}})
    await world.settled()
    bad = (await world.status())["revision"]
    await world.apply(engine={"env": {"GOOD": "1"}})
    await world.settled()

    async def freed() -> bool:
        return await world.get(DEPLOYMENT, f"llama-decode-{bad}") is None

    await until(freed, "the stuck revision is gone")
    assert await world.get(DEPLOYMENT, f"llama-decode-{first}")
    assert (await world.condition("Ready"))["status"] == "True"


async def test_a_first_try_that_never_ran_is_freed_by_its_correction(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(engine={"env": {"BAD": "1"}})
    await world.settled()
    bad = (await world.status())["revision"]
    await world.apply()

    async def freed() -> bool:
        return await world.get(STATEFUL_SET, f"llama-parameter-{bad}") is None and not await world.pods(
            Role.PARAMETER, bad
        )

    await until(freed, "the first try is gone, and its devices are free")


async def test_a_deleted_resource_leaves_nothing(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    await world.settled()
    await world.delete(RESOURCE, "llama")

    async def empty() -> bool:
        return not await world.children()

    await until(empty, "all children are gone")


async def test_a_resource_that_is_deleted_while_it_is_created_leaves_nothing(
    world: World, operators: Operators
) -> None:
    await operators.start()
    for number in range(6):
        await world.apply(f"m{number}")
        await asyncio.sleep(0.03 * number)  # each one is hit at another point
        await world.delete(RESOURCE, f"m{number}")
    await calm(world)

    async def empty() -> bool:
        return not any([await world.children(f"m{number}") for number in range(6)])

    await until(empty, "all children are gone")


async def test_a_resource_recreated_with_the_same_name_gets_new_children(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    await world.settled()
    await world.delete(RESOURCE, "llama")
    uid = (await world.apply())["metadata"]["uid"]

    async def all_new() -> bool:
        owners = [c["metadata"]["ownerReferences"][0]["uid"] for c in (await world.children()).values()]
        return len(owners) >= 8 and set(owners) == {uid}

    await until(all_new, "all children belong to the new resource")


async def test_a_refused_child_is_reported_in_the_api_servers_words(world: World, operators: Operators) -> None:
    quota = {"metadata": {"name": "tight"}, "spec": {"hard": {"count/services": "1"}}}
    await world.api.create(f"/api/v1/namespaces/{world.namespace}/resourcequotas", quota)
    await operators.start()

    async def enforced() -> bool:
        found = await world.api.get(f"/api/v1/namespaces/{world.namespace}/resourcequotas/tight")
        return "hard" in found.get("status", {})

    await until(enforced, "the quota is enforced")
    await world.apply()

    async def reported() -> bool:
        return "exceeded quota: tight" in (await world.condition("Progressing")).get("message", "")

    await until(reported, "the quota is quoted")
    assert await world.get(DEPLOYMENT, "llama-router"), "the other children are there"


@pytest.mark.parametrize(
    ("role", "split"),
    [(Role.PARAMETER, {"pipeline": 2, "nodes": 2}), (Role.DECODE, {"data": 2, "nodes": 2, "expert": True})],
)
async def test_an_instance_of_several_nodes_is_served_scaled_and_pruned_as_one(
    world: World, operators: Operators, role: Role, split: Json
) -> None:
    await operators.start()
    spread: dict[str, Any] = {str(role): {"parallelism": split}}
    await world.apply(**spread)
    wide = await world.serving()
    first, second = names.revision_object("llama", role, wide), names.node_workload("llama", role, 1, wide)
    (pod,) = await world.pods(role, wide)
    assert pod["metadata"]["name"] == f"{first}-0"
    assert pod["metadata"]["labels"][names.LABEL_POD_INDEX] == "0"

    spread[role]["replicas"] = 2
    await world.apply(**spread)

    async def scaled() -> bool:
        sets = [await world.get(STATEFUL_SET, name) or {} for name in (first, second)]
        return [found["spec"]["replicas"] for found in sets] == [2, 2]

    async def reported() -> bool:
        return bool((await world.status())["roles"][role]["desired"] == 2)

    await until(scaled, "both nodes have two pods")
    await until(reported, "the status has two pods")

    await world.apply()
    await world.serving()

    async def gone() -> bool:
        return not any([await world.get(STATEFUL_SET, name) for name in (first, second)])

    await until(gone, "both nodes of the old revision are gone")

    async def without_a_service() -> bool:
        found = await world.get(SERVICE, names.role_object("llama", role))
        return (found is None) is (role is Role.DECODE)

    await until(without_a_service, "D on one node has no headless Service")
