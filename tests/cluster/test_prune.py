"""Undesired children are deleted if uid and version still match."""

from pdinference.cluster.errors import ApiError
from pdinference.cluster.prune import prune
from pdinference.cluster.state.records import child_record
from tests.cluster.fake_api import FakeApi
from tests.cluster.objects import manifest, path


async def test_an_unwanted_child_is_deleted() -> None:
    api = FakeApi()
    stored = api.put(path(manifest()), manifest())
    outcome = await prune(api, [child_record("Service", stored)])
    assert [key.name for key in outcome.applied] == ["llama"]
    assert api.objects == {}


async def test_a_child_that_changed_meanwhile_stays_until_it_is_looked_at_again() -> None:
    api = FakeApi()
    stored = api.put(path(manifest()), manifest())
    api.put(path(manifest()), manifest(type="NodePort"))
    outcome = await prune(api, [child_record("Service", stored)])
    assert [key.name for key in outcome.waiting] == ["llama"]
    assert len(api.objects) == 1


async def test_a_child_that_is_gone_already_is_no_failure() -> None:
    api = FakeApi()
    stored = api.put(path(manifest()), manifest())
    api.objects.clear()
    outcome = await prune(api, [child_record("Service", stored)])
    assert (outcome.failures, outcome.waiting) == ([], [])


async def test_a_child_that_is_going_is_not_deleted_twice() -> None:
    api = FakeApi()
    stored = api.put(path(manifest()), manifest())
    stored["metadata"]["deletionTimestamp"] = "2026-11-05T12:00:00Z"
    await prune(api, [child_record("Service", stored)])
    assert api.requests.total() == 0


async def test_a_refusal_is_reported() -> None:
    api = FakeApi()
    stored = api.put(path(manifest()), manifest())
    api.fail("delete", path(manifest()), ApiError(403, "Forbidden", "no"))
    outcome = await prune(api, [child_record("Service", stored)])
    assert [failure.reason for failure in outcome.failures] == ["Forbidden"]
