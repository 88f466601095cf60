"""No pod runs under a foreign account, and no foreign account gets rights of the operator's roles."""

import pytest

from pdinference.cluster.apply import Applier
from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME
from pdinference.cluster.outcome import Outcome
from tests.cluster.fake_api import FakeApi
from tests.cluster.objects import PARENT, Json, manifest, path, reference

ACCOUNT = manifest("ServiceAccount", "llama-router")
ROLE = manifest("Role", "llama-router")
SUBJECTS = [{"kind": "ServiceAccount", "name": "llama-router", "namespace": "ns"}]
BINDING = {
    **manifest("RoleBinding", "llama-router"),
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "llama-router"},
    "subjects": SUBJECTS,
}
PLAIN = manifest("StatefulSet", "llama-parameter")
SERVICE = manifest("Service")


def workload(image: str = "router:1", kind: str = "Deployment") -> Json:
    spec = {"serviceAccountName": "llama-router", "containers": [{"name": "router", "image": image}]}
    return manifest(kind, "llama-router", template={"spec": spec})


class World:
    """An API server in memory, and an applier."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.cache = Cache()
        self.applier = Applier(self.api, self.cache)

    async def apply(self, image: str = "router:1", kind: str = "Deployment") -> Outcome:
        manifests = (ACCOUNT, ROLE, BINDING, SERVICE, PLAIN, workload(image, kind))
        return await self.applier.apply(map(Child.of, manifests), PARENT)

    def stranger(self, body: Json) -> None:
        """Another client deletes our object, if it exists, and creates one with its name."""
        kind = CHILD_BY_NAME[body["kind"]]
        if old := self.api.objects.pop(path(body), None):
            self.cache.observe(kind, old, deleted=True)
        metadata = {"name": body["metadata"]["name"], "namespace": "ns", "uid": "stranger"}
        self.api.put(path(body), {"kind": body["kind"], "metadata": metadata})


@pytest.mark.parametrize("taken", [ACCOUNT, ROLE, BINDING], ids=lambda body: str(body["kind"]))
@pytest.mark.parametrize("kind", ["Deployment", "Job"])
async def test_a_name_that_is_taken_stops_what_depends_on_it(taken: Json, kind: str) -> None:
    world = World()
    world.stranger(taken)
    outcome = await world.apply(kind=kind)
    assert path(workload(kind=kind)) not in world.api.objects
    assert taken is BINDING or path(BINDING) not in world.api.objects
    assert {path(PLAIN), path(SERVICE)} <= world.api.objects.keys(), "the others are applied"
    (failure,) = outcome.failures
    assert failure.reason == "NameConflict"
    told = str(failure)
    assert f"kubectl delete -n ns {taken['kind'].lower()} llama-router" in told
    assert f"{kind} llama-router" in told
    assert told.endswith("will not be applied.")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_pods_are_not_started_without_their_files(kind: str) -> None:
    """The kubelet would try to mount them again and again, later each time."""
    world = World()
    files = manifest("ConfigMap", "llama-decode-r")
    own, users = ({"name": name, "configMap": {"name": name}} for name in ("llama-decode-r", "chat-template"))
    pods = manifest(kind, "llama-decode-r", template={"spec": {"volumes": [own, users], "containers": []}})
    world.api.fail("apply", path(files), ApiError(403, "Forbidden", "exceeded quota"))
    outcome = await world.applier.apply(map(Child.of, (files, pods)), PARENT)
    assert [failure.reason for failure in outcome.failures] == ["Forbidden"]
    assert path(pods) not in world.api.objects
    assert (await world.applier.apply(map(Child.of, (files, pods)), PARENT)).settled
    assert path(pods) in world.api.objects


@pytest.mark.parametrize("refused", [ACCOUNT, ROLE, BINDING], ids=lambda body: str(body["kind"]))
async def test_so_does_any_refusal_of_the_api_server(refused: Json) -> None:
    world = World()
    world.api.fail("apply", path(refused), ApiError(403, "Forbidden", "denied by policy"))
    outcome = await world.apply()
    assert path(workload()) not in world.api.objects
    assert refused is BINDING or path(BINDING) not in world.api.objects
    assert [failure.reason for failure in outcome.failures] == ["Forbidden"]
    assert not outcome.settled
    assert (await world.apply()).settled
    assert {path(BINDING), path(workload())} <= world.api.objects.keys()


async def test_so_does_an_account_that_is_being_deleted() -> None:
    world = World()
    metadata = {**ACCOUNT["metadata"], "deletionTimestamp": "2026-11-05T12:00:00Z"}
    world.api.put(path(ACCOUNT), {**ACCOUNT, "metadata": metadata})
    outcome = await world.apply()
    assert outcome.failures == []
    assert {key.kind for key in outcome.waiting} == {"ServiceAccount", "RoleBinding", "Deployment"}
    assert path(workload()) not in world.api.objects


async def test_so_does_the_account_of_an_earlier_resource() -> None:
    world = World()
    metadata = {**ACCOUNT["metadata"], "ownerReferences": [reference("earlier")]}
    world.api.put(path(ACCOUNT), {**ACCOUNT, "metadata": metadata})
    assert not (await world.apply()).settled
    assert path(workload()) not in world.api.objects


async def test_an_account_that_becomes_a_strangers_stops_the_next_rollout() -> None:
    world = World()
    assert (await world.apply()).settled
    running = world.api.objects[path(workload())]
    world.stranger(ACCOUNT)
    outcome = await world.apply("tenant/router:evil")
    assert world.api.objects[path(workload())] == running
    assert [failure.reason for failure in outcome.failures] == ["NameConflict"]
    world.stranger(ROLE)
    assert not (await world.apply("tenant/router:evil")).settled
    assert world.api.objects[path(workload())] == running


async def test_an_object_of_the_role_of_another_kind_stops_nothing() -> None:
    """A Service may have the account's name."""
    world = World()
    world.stranger(manifest("Service", "llama-router"))
    outcome = await world.applier.apply(
        map(Child.of, (manifest("Service", "llama-router"), ACCOUNT, ROLE, BINDING, workload())), PARENT
    )
    assert [failure.kind for failure in outcome.failures] == ["Service"]
    assert path(workload()) in world.api.objects
