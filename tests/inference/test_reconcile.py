"""Repeated reconciles bring a resource to its desired state, and then write nothing."""

import json
from collections.abc import Callable

import pytest

from pdinference.api import names
from pdinference.api.validation import validated
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, SERVICE_ACCOUNT
from pdinference.manifests import RenderSettings, render
from tests.inference.world import CR, OWNER, ROUTER, Json, World


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document())


async def test_a_rollout_is_reconciled_when_its_deadline_passes(world: World) -> None:
    await world.reconcile()
    looks = [(await world.reconcile()).requeue_after for _ in range(2)]
    assert looks[-1] == pytest.approx(4200, abs=30)


async def test_a_new_resource_gets_all_its_children_and_a_status(world: World) -> None:
    assert not (await world.reconcile()).retry
    assert world.api.names("/statefulsets/")
    assert world.api.names("/services/") == ["llama", "llama-parameter"]
    assert world.condition("Ready")["status"] == "False"
    assert world.status["observedGeneration"] == 1


async def test_a_second_reconcile_makes_no_requests(world: World) -> None:
    await world.reconcile()
    await world.reconcile()
    await world.reconcile()
    assert world.api.requests.total() == 0


async def test_after_a_restart_nothing_is_written(world: World) -> None:
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    world.restart()
    await world.reconcile()
    assert world.api.writes() == 0


async def test_the_history_says_which_specs_served(world: World) -> None:
    """The second one never gets ready pods."""

    def served() -> list[str]:
        entries = [body for path, body in world.api.objects.items() if "/controllerrevisions/" in path]
        return [body["metadata"]["annotations"][names.ANNOTATION_SERVED] for body in entries]

    await world.reconcile()
    assert served() == ["false"]
    world.roll_out()
    await world.reconcile()
    assert served() == ["true"]
    world.edit(engine={"image": "v:2"})
    await world.reconcile()
    await world.reconcile()
    assert served() == ["true", "false"]


async def test_requests_are_answered_when_all_is_up(world: World) -> None:
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    assert world.condition("Ready")["status"] == "True"
    assert world.status["servingRevision"] == world.status["revision"] != ""
    assert world.condition("Progressing")["reason"] == "RolloutComplete"


CLIENT_SERVICE = CHILD_BY_NAME["Service"].path("ns", "llama")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"ownerReferences": []}, "NameConflict Service llama: a Service of this name exists already"),
        ({"deletionTimestamp": "2026-11-21T00:00:00Z"}, "Starting Service llama does not exist yet, or is being del"),
    ],
)
async def test_it_is_not_ready_while_its_url_leads_elsewhere(world: World, metadata: Json, words: str) -> None:
    """As where another PDInference is called llama-parameter: its URL is that of the P pods of this one."""
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    service = world.api.objects[CLIENT_SERVICE]
    world.api.put(CLIENT_SERVICE, {**service, "metadata": {**service["metadata"], **metadata}})
    world.sync()
    await world.reconcile()
    ready = world.condition("Ready")
    assert ready["status"] == "False"
    assert f"{ready['reason']} {ready['message']}".startswith(words)
    del world.api.objects[CLIENT_SERVICE]
    world.sync()
    await world.reconcile()
    assert world.condition("Ready")["status"] == "True", "and is after the same reconcile that creates it"


@pytest.mark.parametrize("year", ["2100", "9999"])
async def test_times_ahead_in_the_status_do_not_count(world: World, year: str) -> None:
    """The clock was set back, or another client wrote them."""
    await world.reconcile()
    future = f"{year}-12-31T23:59:59Z"
    status = world.api.objects[CR]["status"]
    status["lastProgressTime"] = future
    status["conditions"] = [{**condition, "lastTransitionTime": future} for condition in status["conditions"]]
    world.restart()
    result = await world.reconcile()
    assert result.requeue_after == pytest.approx(4200, abs=30)
    assert year not in str(world.status)


async def test_a_child_that_was_deleted_comes_back(world: World) -> None:
    await world.reconcile()
    before = set(world.api.objects)
    for path in [path for path in before if "/deployments/" in path or "/roles/" in path]:
        del world.api.objects[path]
    world.sync()
    await world.reconcile()
    assert set(world.api.objects) == before


async def edited_after_rollout(world: World, image: str) -> str:
    """Roll out, then ask for another image; the first revision comes back."""
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    first: str = world.status["revision"]
    world.edit(engine={"image": image})
    await world.reconcile()
    return first


async def test_the_old_revision_stays_until_the_new_one_serves(world: World) -> None:
    first = await edited_after_rollout(world, "v:2")
    second = world.status["revision"]
    assert first != second
    assert world.revisions() == {first, second}
    assert world.status["servingRevision"] == first
    world.roll_out()
    await world.reconcile()
    await world.reconcile()
    assert world.revisions() == {second}
    assert world.status["servingRevision"] == second


async def test_claims_of_the_old_revision_stay_as_long_as_it(world: World) -> None:
    def claiming(device_class: str) -> Json:
        return {"accelerator": {"devices": {"deviceClassName": device_class}}}

    world.edit(decode=claiming("a"))
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    first = world.status["revision"]
    world.edit(decode=claiming("b"))
    await world.reconcile()
    second = world.status["revision"]
    assert world.revisions("resourceclaimtemplates") == {first, second}
    world.edit()
    await world.reconcile()
    assert world.revisions("resourceclaimtemplates") == {first}
    world.roll_out()
    await world.reconcile()
    await world.reconcile()
    assert world.revisions("resourceclaimtemplates") == set()


async def test_programs_of_the_old_revision_stay_as_long_as_its_pods(world: World) -> None:
    launcher = {"transfer": {"hostLocal": {"parameter": 1, "decode": 1}}}
    world.edit(**launcher)
    await world.reconcile()
    first = world.status["revision"]
    world.roll_out()
    await world.reconcile()
    assert world.revisions("configmaps") == {first}
    world.edit(**launcher, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    assert world.revisions("configmaps") == {first, second}
    world.roll_out()
    await world.reconcile()
    await world.reconcile()
    assert world.revisions("configmaps") == {second}


async def test_programs_that_somebody_deleted_come_back_and_cost_nothing_otherwise(world: World) -> None:
    world.edit(transfer={"hostLocal": {"parameter": 1, "decode": 1}})
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    world.restart()
    await world.reconcile()
    assert world.api.writes() == 0
    (path,) = (path for path in world.api.objects if "/configmaps/" in path)
    del world.api.objects[path]
    world.sync()
    await world.reconcile()
    assert path in world.api.objects


async def test_the_old_revision_survives_a_restart_during_the_rollout(world: World) -> None:
    first = await edited_after_rollout(world, "v:2")
    world.restart()
    await world.reconcile()
    assert first in world.revisions()


async def test_a_bad_revision_is_freed_by_the_next_edit(world: World) -> None:
    first = await edited_after_rollout(world, "v:bad")
    bad = world.status["revision"]
    world.edit(engine={"image": "v:3"})
    await world.reconcile()
    await world.reconcile()
    assert bad not in world.revisions()
    assert world.revisions() == {first, world.status["revision"]}


async def test_an_edit_can_be_taken_back(world: World) -> None:
    first = await edited_after_rollout(world, "v:2")
    second = world.status["revision"]
    world.edit()
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    await world.reconcile()
    assert world.status["revision"] == first
    assert world.revisions() == {first}
    assert second not in world.revisions()


async def test_recreate_deletes_the_old_revision_at_once(world: World) -> None:
    world.edit(rollout={"strategy": "Recreate"})
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    first = world.status["revision"]
    world.edit(rollout={"strategy": "Recreate"}, engine={"image": "v:2"})
    await world.reconcile()
    assert first not in world.revisions()


async def test_scaling_changes_no_revision(world: World) -> None:
    await world.reconcile()
    before = world.status["revision"]
    world.edit(decode={"replicas": 3})
    await world.reconcile()
    assert world.status["revision"] == before
    assert world.status["roles"]["decode"]["desired"] == 3


async def test_a_strangers_object_is_left_alone_and_named(world: World) -> None:
    path = "/api/v1/namespaces/ns/services/llama"
    world.api.put(path, {"metadata": {"name": "llama", "namespace": "ns"}, "spec": {"mine": True}})
    result = await world.reconcile()
    assert result.retry
    assert world.api.objects[path]["spec"] == {"mine": True}
    assert world.condition("Progressing")["reason"] == "NameConflict"
    assert world.api.names("/statefulsets/")  # the other children do not wait
    assert [e["reason"] for p, e in world.api.objects.items() if "/events/" in p].count("NameConflict") == 1


async def test_a_router_does_not_start_under_a_strangers_account(world: World) -> None:
    path = SERVICE_ACCOUNT.path("ns", "llama-router")
    world.api.put(path, {"metadata": {"name": "llama-router", "namespace": "ns"}})
    assert (await world.reconcile()).retry
    assert ROUTER not in world.api.objects
    assert world.api.names("/rolebindings/") == []
    condition = world.condition("Progressing")
    assert condition["reason"] == "NameConflict"
    for words in (
        "kubectl delete -n ns serviceaccount llama-router",
        "RoleBinding llama-router",
        "Deployment llama-router",
    ):
        assert words in condition["message"]
    del world.api.objects[path]
    world.sync()
    await world.reconcile()
    assert ROUTER in world.api.objects
    assert world.condition("Progressing")["reason"] != "NameConflict"


async def test_a_router_whose_account_was_replaced_is_left_as_it_is(world: World) -> None:
    await world.reconcile()
    before = json.dumps(world.api.objects[ROUTER]["spec"])
    path = SERVICE_ACCOUNT.path("ns", "llama-router")
    del world.api.objects[path]
    world.api.put(path, {"metadata": {"name": "llama-router", "namespace": "ns", "uid": "stranger"}})
    world.sync()
    world.edit(router={"resources": {"requests": {"cpu": "2"}}})
    assert (await world.reconcile()).retry
    assert json.dumps(world.api.objects[ROUTER]["spec"]) == before
    assert "Deployment llama-router" in world.condition("Progressing")["message"]


async def test_an_invalid_spec_is_reported_and_running_children_are_left_alone(world: World) -> None:
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    children = {p: json.dumps(b["spec"]) for p, b in world.api.objects.items() if "/deployments/" in p}
    world.edit(parameter={"replicas": -1})
    await world.reconcile()
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert "spec.parameter.replicas" in world.condition("Progressing")["message"]
    assert world.condition("Ready")["status"] == "True"
    assert {p: json.dumps(b["spec"]) for p, b in world.api.objects.items() if "/deployments/" in p} == children
    await world.reconcile()
    assert world.api.writes() == 0


async def test_a_resource_that_is_being_deleted_gets_nothing(world: World) -> None:
    world.api.objects[CR]["metadata"]["deletionTimestamp"] = "2026-11-05T12:00:00Z"
    world.api.put(CR, world.api.objects[CR])
    world.sync()
    assert not (await world.reconcile()).retry
    assert world.api.requests.total() == 0


async def test_a_resource_that_is_gone_gets_nothing(world: World) -> None:
    del world.api.objects[CR]
    world.sync()
    assert not (await world.reconcile()).retry
    assert world.api.requests.total() == 0


async def test_the_status_is_written_even_when_a_child_is_refused(world: World) -> None:
    world.api.fail("apply", ROUTER, ApiError(403, "Forbidden", "exceeded quota: team"))
    result = await world.reconcile()
    assert result.retry
    assert "exceeded quota: team" in world.condition("Progressing")["message"]
    assert not (await world.reconcile()).retry
    assert world.condition("Progressing")["reason"] == "RollingOut"


async def test_a_status_that_cannot_be_written_is_tried_again(world: World) -> None:
    world.api.fail("merge", CR + "/status", ApiError(500, "InternalError", "etcd"))
    assert (await world.reconcile()).retry
    assert not (await world.reconcile()).retry
    assert world.status["revision"]


async def test_the_status_of_a_new_resource_of_the_same_name_is_not_overwritten(world: World) -> None:
    await world.reconcile()
    world.roll_out()
    del world.api.objects[CR]  # the watch has not told yet
    world.api.put(CR, {**world.document, "metadata": {"name": "llama", "namespace": "ns", "uid": "another"}})
    await world.reconciler.reconcile(OWNER)
    assert "status" not in world.api.objects[CR]


async def test_a_status_of_another_version_keeps_what_serves(world: World) -> None:
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    serving = world.status["servingRevision"]
    world.api.objects[CR]["status"]["fromTheFuture"] = {"a": 1}
    world.restart()
    await world.reconcile()
    assert world.status["servingRevision"] == serving


async def test_a_selector_that_does_not_compile_is_named_and_what_runs_keeps_running(world: World) -> None:
    """Only the API server can compile CEL."""
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    before = world.revisions()
    devices = {"deviceClassName": "gpu.example.com", "selectors": ["device.attributes["]}
    world.edit(decode={"accelerator": {"devices": devices}})
    claims = [
        f"/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates/{child['metadata']['name']}"
        for child in render(validated(world.api.objects[CR]), RenderSettings()).objects
        if child["kind"] == "ResourceClaimTemplate"
    ]
    message = "spec.spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: Syntax error"
    world.api.fail("apply", claims[0], *[ApiError(422, "Invalid", message)] * 5)
    for _ in range(3):
        await world.reconcile()
    assert message in world.condition("Progressing")["message"]
    assert claims[0].rpartition("/")[2] in world.condition("Progressing")["message"]
    assert world.revisions() == before, "no pods without their claim, and none that served is gone"
    assert world.condition("Ready")["status"] == "True"
