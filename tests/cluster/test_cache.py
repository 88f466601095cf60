"""Records of the cache never go back to an older version, for all sources."""

from hypothesis import given
from hypothesis import strategies as st

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.cache import Cache, record_of
from pdinference.cluster.kinds import CHILD_BY_NAME, POD, RESOURCE, ChildKey
from pdinference.cluster.state.records import child_record
from tests.cluster.objects import OWNER, Json, live, manifest
from tests.controllers import owned

SERVICE = CHILD_BY_NAME["Service"]
KEY = ChildKey("Service", "ns", "llama")
DELETED = {"deletionTimestamp": "2026-11-21T12:00:00Z"}


def pod(version: int, *, ready: str = "True") -> Json:
    return {
        "metadata": owned(
            {
                "name": "p-0",
                "namespace": "ns",
                "uid": "pod-1",
                "resourceVersion": str(version),
                "labels": names.role_selector("llama", Role.DECODE, "r1"),
            }
        ),
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


def resource(version: int, *, generation: int = 1, uid: str = "cr-1", **status: object) -> Json:
    metadata = {"name": "llama", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": {**metadata, "generation": generation}, "spec": {}, "status": status}


def test_an_older_event_does_not_undo_an_apply() -> None:
    cache = Cache()
    cache.applied("Service", live(manifest(type="NodePort"), version=10))
    assert cache.observe(SERVICE, live(manifest(), version=9), deleted=False) == set()
    record = cache.children.get(KEY)
    assert record is not None
    assert record.version == 10


def test_the_echo_of_an_apply_wakes_nobody() -> None:
    cache = Cache()
    body = live(manifest(), version=10)
    cache.applied("Service", body)
    assert cache.observe(SERVICE, body, deleted=False) == set()


def test_an_apply_settles_a_child_even_when_its_event_came_first() -> None:
    cache = Cache()
    body = live(manifest(), version=10)
    assert cache.observe(SERVICE, body, deleted=False) == {OWNER}
    cache.applied("Service", body)
    record = cache.children.get(KEY)
    assert record is not None
    assert record.settled == record.digest
    assert record.content is None


def test_a_settled_child_keeps_no_content_and_survives_status_changes() -> None:
    cache = Cache()
    cache.applied("Service", live(manifest(), version=10))
    cache.observe(SERVICE, live(manifest(), version=11, loadBalancer={}), deleted=False)
    record = cache.children.get(KEY)
    assert record is not None
    assert record.settled == record.digest
    assert record.content is None


def test_a_change_by_hand_wakes_the_owner_and_is_kept_for_comparison() -> None:
    cache = Cache()
    cache.applied("Service", live(manifest(), version=10))
    assert cache.observe(SERVICE, live(manifest(type="NodePort"), version=11), deleted=False) == {OWNER}
    record = cache.children.get(KEY)
    assert record is not None
    assert record.content is not None


def test_an_answer_that_was_under_way_does_not_bring_a_deleted_child_back() -> None:
    cache = Cache()
    cache.observe(SERVICE, live(manifest(), version=10), deleted=False)
    assert cache.observe(SERVICE, live(manifest(), version=12), deleted=True) == {OWNER}
    cache.applied("Service", live(manifest(), version=11))
    assert cache.children.get(KEY) is None


def test_a_child_whose_label_comes_back_is_known_again() -> None:
    cache = Cache()
    cache.observe(SERVICE, live(manifest(), version=10), deleted=True)
    cache.applied("Service", live(manifest(), version=11))
    assert cache.children.get(KEY) is not None


def test_the_end_of_an_object_does_not_remove_its_successor() -> None:
    cache = Cache()
    cache.observe(SERVICE, live(manifest(), uid="u2", version=20), deleted=False)
    assert cache.observe(SERVICE, live(manifest(), uid="u1", version=15), deleted=True) == set()
    assert cache.children.get(KEY) is not None


def test_a_list_corrects_what_the_watch_missed() -> None:
    cache = Cache()
    gone, there, newer = manifest(name="gone"), manifest(name="there"), manifest(name="newer")
    cache.observe(SERVICE, live(gone, uid="a", version=1), deleted=False)
    cache.observe(SERVICE, live(newer, uid="c", version=9), deleted=False)
    listed = [child_record("Service", live(there, uid="b", version=4))]
    assert cache.replace(SERVICE, listed, version=5, namespace=None) == {OWNER}
    names_left = {key[2] for key, _ in cache.children.items()}
    assert names_left == {"there", "newer"}


def test_a_list_of_one_namespace_or_kind_leaves_the_others_alone() -> None:
    cache = Cache()
    cache.observe(SERVICE, live(manifest(), version=1), deleted=False)
    assert cache.replace(SERVICE, [], version=5, namespace="other") == set()
    assert cache.replace(CHILD_BY_NAME["Role"], [], version=5, namespace=None) == set()
    assert len(cache.children) == 1


def test_a_list_that_finds_nothing_new_wakes_nobody() -> None:
    cache = Cache()
    cache.applied("Service", live(manifest(), version=3))
    listed = [child_record("Service", live(manifest(), version=3))]
    assert cache.replace(SERVICE, listed, version=5, namespace=None) == set()


def test_a_pod_wakes_its_resource_only_when_what_matters_changed() -> None:
    cache = Cache()
    assert cache.observe(POD, pod(1), deleted=False) == {OWNER}
    assert cache.observe(POD, pod(2), deleted=False) == set()
    assert cache.observe(POD, pod(3, ready="False"), deleted=False) == {OWNER}
    assert [found.ready for found in cache.pods_of(OWNER)] == [False]
    assert cache.observe(POD, pod(4), deleted=True) == {OWNER}


def test_a_pod_without_a_role_is_not_ours() -> None:
    body = pod(1)
    del body["metadata"]["labels"][names.LABEL_ROLE]
    assert record_of(POD, body) is None
    assert Cache().observe(POD, body, deleted=False) == set()


def test_a_pod_that_its_workload_gave_up_is_not_ours_until_it_is_taken_back() -> None:
    cache, released = Cache(), pod(2)
    del released["metadata"]["ownerReferences"]
    cache.observe(POD, pod(1), deleted=False)
    assert cache.observe(POD, released, deleted=False) == {OWNER}
    assert cache.pods_of(OWNER) == ()
    assert cache.observe(POD, pod(1), deleted=False) == set(), "a late event"
    assert cache.pods_of(OWNER) == ()
    assert cache.observe(POD, pod(3), deleted=False) == {OWNER}
    assert [found.name for found in cache.pods_of(OWNER)] == ["p-0"]
    assert cache.observe(POD, {**released, "metadata": {**released["metadata"], "resourceVersion": "4"}}, deleted=True)
    assert cache.pods_of(OWNER) == ()


def test_an_edit_in_the_response_to_a_status_write_is_noticed() -> None:
    """The edit was stored between the last event and our write, so the response has it before the watch event."""
    for edited in (resource(2, generation=2), {**resource(2), "metadata": {**resource(2)["metadata"], **DELETED}}):
        cache = Cache()
        cache.observe(RESOURCE, resource(1), deleted=False)
        written = {**edited, "metadata": {**edited["metadata"], "resourceVersion": "3"}, "status": {"revision": "r1"}}
        cache.status_written(RESOURCE.name, written)
        assert cache.observe(RESOURCE, edited, deleted=False) == {OWNER}
        assert cache.observe(RESOURCE, written, deleted=False) == {OWNER}


def test_our_own_status_write_wakes_nobody() -> None:
    cache = Cache()
    assert cache.observe(RESOURCE, resource(1), deleted=False) == {OWNER}
    written = resource(2, url="x")
    cache.status_written(RESOURCE.name, written)
    assert cache.observe(RESOURCE, written, deleted=False) == set()
    assert cache.observe(RESOURCE, resource(3, generation=2, url="x"), deleted=False) == {OWNER}


events = st.lists(st.tuples(st.integers(1, 30), st.sampled_from(["event", "apply", "delete"])), max_size=20)


@given(events)
def test_the_version_never_goes_back(steps: list[tuple[int, str]]) -> None:
    cache, seen = Cache(), 0
    for version, step in steps:
        body = live(manifest(port=version), version=version)
        if step == "apply":
            cache.applied("Service", body)
        else:
            cache.observe(SERVICE, body, deleted=step == "delete")
        record = cache.children.get(KEY)
        if record is not None:
            assert record.version >= seen
            seen = record.version
