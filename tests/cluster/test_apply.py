"""Children are applied exactly when necessary, and foreign objects never."""

import asyncio

from pdinference.api import names
from pdinference.cluster.apply import Applier
from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME
from pdinference.cluster.outcome import Outcome
from tests.cluster.fake_api import FakeApi
from tests.cluster.objects import PARENT, Json, live, manifest, path, reference

SERVICE = CHILD_BY_NAME["Service"]


class World:
    """A fake API server, a cache that follows it, and an applier."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.cache = Cache()
        self.applier = Applier(self.api, self.cache)

    async def apply(self, *manifests: Json) -> Outcome:
        self.api.requests.clear()
        return await self.applier.apply(map(Child.of, manifests), PARENT)

    def edit(self, body: Json, **changes: object) -> None:
        """Another client changes the live object, and the watch reports it."""
        found = self.api.objects[path(body)]
        edited = self.api.put(path(body), {**found, **changes})
        self.cache.observe(CHILD_BY_NAME[body["kind"]], edited, deleted=False)


async def test_an_absent_child_is_applied_with_its_hash() -> None:
    world = World()
    outcome = await world.apply(manifest())
    assert [key.name for key in outcome.applied] == ["llama"]
    assert names.ANNOTATION_APPLIED_HASH in world.api.objects[path(manifest())]["metadata"]["annotations"]


async def test_an_absent_child_takes_one_request() -> None:
    world = World()
    await world.apply(manifest())
    assert world.api.requests == {"apply": 1}


async def test_a_strangers_object_that_comes_at_the_last_moment_is_not_touched() -> None:
    """Nothing can come between the look for it and the apply: both are one request."""
    world = World()
    stranger = {"metadata": {"name": "llama", "namespace": "ns"}, "spec": {"mine": True}}
    sent = world.api.apply

    async def late(at: str, body: Json, *, manager: str) -> Json:
        world.api.put(at, stranger)
        return await sent(at, body, manager=manager)

    world.api.apply = late  # type: ignore[method-assign, assignment]
    outcome = await world.apply(manifest())
    assert [failure.reason for failure in outcome.failures] == ["NameConflict"]
    assert world.api.objects[path(manifest())]["spec"] == {"mine": True}


async def test_the_second_time_nothing_is_asked_for() -> None:
    world = World()
    await world.apply(manifest())
    outcome = await world.apply(manifest())
    assert outcome.applied == []
    assert world.api.requests.total() == 0


async def test_a_changed_manifest_is_applied_without_looking_first() -> None:
    world = World()
    await world.apply(manifest())
    await world.apply(manifest(type="NodePort"))
    assert world.api.requests == {"apply": 1}


async def test_an_edit_by_hand_is_undone() -> None:
    world = World()
    await world.apply(manifest())
    world.edit(manifest(), spec={"type": "LoadBalancer"})
    assert len((await world.apply(manifest())).applied) == 1


async def test_fields_of_others_are_left_alone() -> None:
    world = World()
    await world.apply(manifest())
    world.edit(manifest(), spec={"type": "ClusterIP", "clusterIP": "10.0.0.1"}, status={"loadBalancer": {}})
    assert (await world.apply(manifest())).applied == []
    assert world.api.requests.total() == 0


async def test_after_a_restart_what_is_in_order_is_not_written() -> None:
    world = World()
    await world.apply(manifest(cpu="0.5"))
    stored = world.api.objects[path(manifest())]
    canonical = {**stored, "spec": {"cpu": "500m", "defaulted": True}}
    world.cache = Cache()
    world.applier = Applier(world.api, world.cache)
    world.cache.observe(SERVICE, canonical, deleted=False)
    assert (await world.apply(manifest(cpu="0.5"))).applied == []
    assert world.api.requests.total() == 0


async def test_a_value_that_never_matches_costs_one_write_and_no_loop() -> None:
    world = World()
    await world.apply(manifest())
    world.edit(manifest(), spec={"type": "rewritten"})
    body = {**manifest(), "spec": {"type": "rewritten"}}
    world.api.put(path(manifest()), world.api.objects[path(manifest())])

    async def rewriting(at: str, sent: Json, *, manager: str) -> Json:
        world.api.requests["apply"] += 1
        return world.api.put(at, {**sent, "spec": body["spec"]})

    world.api.apply = rewriting  # type: ignore[method-assign, assignment]
    assert len((await world.apply(manifest())).applied) == 1
    assert (await world.apply(manifest())).applied == []


async def test_a_strangers_object_is_reported_and_not_touched() -> None:
    world = World()
    world.api.put(path(manifest()), {"metadata": {"name": "llama", "namespace": "ns"}, "spec": {"mine": True}})
    outcome = await world.apply(manifest())
    (failure,) = outcome.failures
    assert failure.reason == "NameConflict"
    assert "kubectl delete -n ns service llama" in failure.message
    assert world.api.writes() == 0


async def test_a_stranger_with_our_labels_is_a_stranger() -> None:
    world = World()
    body = manifest()
    del body["metadata"]["ownerReferences"]
    world.cache.observe(SERVICE, live(body), deleted=False)
    (failure,) = (await world.apply(manifest())).failures
    assert failure.reason == "NameConflict"
    assert world.api.requests.total() == 0


async def test_a_child_of_another_resource_is_a_strangers() -> None:
    world = World()
    body = manifest()
    body["metadata"]["ownerReferences"] = [reference(uid="cr-9", name="other")]
    world.cache.observe(SERVICE, live(body), deleted=False)
    assert [f.reason for f in (await world.apply(manifest())).failures] == ["NameConflict"]


async def test_a_child_of_an_older_resource_of_the_same_name_is_waited_for() -> None:
    world = World()
    body = manifest()
    body["metadata"]["ownerReferences"] = [reference(uid="cr-0")]
    world.api.put(path(body), body)
    outcome = await world.apply(manifest())
    assert outcome.failures == []
    assert [key.name for key in outcome.waiting] == ["llama"]
    assert world.api.writes() == 0


async def test_a_child_that_is_being_deleted_is_waited_for() -> None:
    world = World()
    body = live(manifest())
    body["metadata"]["deletionTimestamp"] = "2026-11-05T12:00:00Z"
    world.cache.observe(SERVICE, body, deleted=False)
    outcome = await world.apply(manifest())
    assert [key.name for key in outcome.waiting] == ["llama"]


async def test_a_child_of_ours_that_lost_its_label_gets_it_back() -> None:
    world = World()
    await world.apply(manifest())
    found = world.api.objects[path(manifest())]
    world.cache.observe(SERVICE, found, deleted=True)
    await world.apply(manifest())
    assert world.api.requests == {"refused": 1, "get": 1, "apply": 1}


async def test_one_refusal_does_not_stop_the_others() -> None:
    world = World()
    refusal = ApiError(403, "Forbidden", "exceeded quota: team")
    world.api.fail("apply", path(manifest("StatefulSet", "a")), refusal)
    outcome = await world.apply(manifest("StatefulSet", "a"), manifest("Deployment", "b"), manifest("Service", "c"))
    assert sorted(key.name for key in outcome.applied) == ["b", "c"]
    assert [(f.kind, f.name, f.message, f.transient) for f in outcome.failures] == [
        ("StatefulSet", "a", "exceeded quota: team", False)
    ]


async def test_a_busy_server_is_given_the_time_that_it_asks_for() -> None:
    world = World()
    world.api.fail("apply", path(manifest()), ApiError(429, "TooManyRequests", "later", retry_after=7))
    outcome = await world.apply(manifest())
    assert outcome.retry_after == 7
    assert outcome.failures[0].transient


async def test_workloads_come_after_what_their_pods_need() -> None:
    world = World()
    order: list[str] = []
    original = world.api.apply

    async def slow(at: str, sent: Json, *, manager: str) -> Json:
        await asyncio.sleep(0)
        order.append(sent["kind"])
        return await original(at, sent, manager=manager)

    world.api.apply = slow  # type: ignore[method-assign, assignment]
    kinds = ("Deployment", "RoleBinding", "ServiceAccount", "StatefulSet", "Role")
    await world.apply(*(manifest(kind, kind.lower()) for kind in kinds))
    assert set(order[:2]) == {"ServiceAccount", "Role"}


async def test_a_role_binding_waits_for_the_api_server_to_see_its_role() -> None:
    """The API server looks up the role of a binding, and returns 404 while its own cache lacks the role."""
    world = World()
    binding = manifest("RoleBinding", "llama-router")
    world.api.fail("apply", path(binding), ApiError(404, "NotFound", "rolebindings llama-router not found"))
    outcome = await world.apply(binding)
    assert outcome.failures == []
    assert [key.name for key in outcome.waiting] == ["llama-router"]


class TestAKindThatTheClusterLacks:
    """Dynamic resource allocation is younger than the oldest Kubernetes that the operator works on."""

    MISSING = ApiError(404, "NotFound", "the server could not find the requested resource")

    async def test_the_failure_says_what_to_do(self) -> None:
        world = World()
        template = manifest("ResourceClaimTemplate")
        world.api.fail("apply", path(template), self.MISSING)
        (failure,) = (await world.apply(template)).failures
        assert (failure.reason, failure.transient) == ("NotServed", False)
        assert "accelerator.devices" in failure.message

    async def test_pods_that_would_lose_their_claims_are_not_started(self) -> None:
        world = World()
        template, service, workload = manifest("ResourceClaimTemplate"), manifest(), manifest("StatefulSet")
        world.api.fail("apply", path(template), self.MISSING)
        outcome = await world.apply(template, service, workload)
        assert [key.kind for key in outcome.applied] == ["Service"]
        assert path(workload) not in world.api.objects

    async def test_a_field_that_the_cluster_is_too_old_for_is_named_with_what_to_do(self) -> None:
        world = World()
        workload = manifest("StatefulSet")
        said = (
            "failed to create typed patch object (t/llama; apps/v1, Kind=StatefulSet): "  # by Kubernetes 1.30
            '.spec.template.spec.volumes[name="model"].image: field not declared in schema'
        )
        world.api.fail("apply", path(workload), ApiError(500, "Http500", said))
        (failure,) = (await world.apply(workload)).failures
        assert (failure.reason, failure.transient) == ("NotServed", False)
        assert 'volumes[name="model"].image' in failure.message
        assert "spec.model.source.image" in failure.message
        assert "Kubernetes 1.35" in failure.message

    async def test_all_goes_on_once_the_cluster_was_upgraded(self) -> None:
        world = World()
        template = manifest("ResourceClaimTemplate")
        world.api.fail("apply", path(template), self.MISSING)
        await world.apply(template)
        assert [key.kind for key in (await world.apply(template)).applied] == ["ResourceClaimTemplate"]

    async def test_pods_do_not_wait_for_a_route(self) -> None:
        world = World()
        route, workload = manifest("HTTPRoute"), manifest("StatefulSet")
        world.api.fail("apply", path(route), self.MISSING)
        outcome = await world.apply(route, workload)
        assert [key.kind for key in outcome.applied] == ["StatefulSet"]
        (failure,) = outcome.failures
        assert (failure.kind, failure.reason) == ("HTTPRoute", "NotServed")
        assert "spec.router.route" in failure.message
