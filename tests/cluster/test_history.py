"""The history keeps a bounded number of valid specs, after crashes and with foreign entries."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api import names
from pdinference.cluster.cache import Cache
from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.entry import entry_name, history_record, shape_of, spec_of
from pdinference.cluster.history.store import LIMIT, History, superfluous
from pdinference.cluster.kinds import CONTROLLER_REVISION
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.state.records import ResourceRecord, compact
from tests.cluster.fake_api import FakeApi
from tests.cluster.objects import OWNER, Json, reference

PLACE = CONTROLLER_REVISION.path("ns")


class KilledError(Exception):
    """The operator is gone."""


class World:
    """A history on an API server in memory."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.restart()

    def restart(self) -> None:
        self.cache = Cache()
        self.sync()
        self.history = History(self.api, self.cache)

    def sync(self) -> None:
        """What a complete list brings."""
        selected = [body for body in self.entries().values() if names.LABEL_SPEC in body["metadata"].get("labels", {})]
        self.cache.replace(CONTROLLER_REVISION, map(history_record, selected), 10**9, None)

    def entries(self) -> dict[str, Json]:
        return {path: body for path, body in self.api.objects.items() if path.startswith(PLACE)}

    def numbers(self) -> dict[str, int]:
        """Image of each entry, and its number."""
        return {body["data"]["spec"]["image"]: body["revision"] for body in self.entries().values()}

    async def remember(self, image: str, **spec: Any) -> Outcome:
        self.api.requests.clear()
        written, pruned = await self.history.remember(resource(image, **spec))
        written.add(pruned)
        return written


def resource(image: str = "a", *, uid: str = "cr-1", **spec: Any) -> ResourceRecord:
    return ResourceRecord(OWNER, uid, 1, 1, False, compact({"image": image, **spec}), b"{}")


async def last_valid(world: World, record: ResourceRecord) -> bytes | None:
    found = await world.history.last_valid(record)
    return None if found is None else found.spec


async def test_a_valid_spec_is_kept_once_and_then_costs_no_request() -> None:
    world = World()
    assert (await world.remember("a")).settled
    (body,) = world.entries().values()
    assert body["data"] == {"spec": {"image": "a"}}
    assert body["revision"] == 1
    assert body["metadata"]["name"] == entry_name(resource("a"))
    assert body["metadata"]["ownerReferences"][0] == {**reference(), "blockOwnerDeletion": True}
    assert body["metadata"]["labels"].items() >= names.instance_labels("llama").items()
    for _ in range(2):
        await world.remember("a")
        assert world.api.requests.total() == 0
        world.restart()


async def test_an_entry_notes_once_that_its_spec_served() -> None:
    world = World()
    await world.remember("a")
    (entry,) = world.cache.history.owned_by(OWNER)
    assert entry.served is False
    assert not world.history.is_due(resource("a"))
    assert world.history.is_unproven(resource("a"))
    await world.history.remember(resource("a"), served=True)
    world.restart()
    (entry,) = world.cache.history.owned_by(OWNER)
    assert entry.served
    assert not world.history.is_unproven(resource("a"))
    await world.remember("b")
    await world.remember("a")
    assert {record.number: record.served for record in world.cache.history.owned_by(OWNER)} == {2: False, 3: True}


async def test_edits_count_up_and_a_return_raises_the_old_entry() -> None:
    world = World()
    for image in "abca":
        await world.remember(image)
    assert world.numbers() == {"a": 4, "b": 2, "c": 3}
    assert world.api.requests == {"merge": 1}
    await world.remember("a")
    assert world.api.requests.total() == 0


async def test_the_history_is_bounded_and_the_oldest_entries_go() -> None:
    world = World()
    for number in range(LIMIT + 4):
        await world.remember(str(number))
        world.sync()
    assert world.numbers() == {str(number): number + 1 for number in range(4, LIMIT + 4)}


async def test_replica_counts_of_decode_do_not_push_edits_out() -> None:
    world = World()
    await world.remember("a", decode={"replicas": 1})
    for replicas in range(2, 3 * LIMIT):
        await world.remember("b", decode={"replicas": replicas})
        assert (await world.remember("b", decode={"replicas": replicas})).settled
        assert world.api.requests.total() == 0, "an entry that was deleted is not deleted again"
    assert set(world.numbers()) == {"a", "b"}
    assert {body["data"]["spec"]["decode"]["replicas"] for body in world.entries().values()} == {1, 3 * LIMIT - 1}


async def test_an_operator_killed_at_any_write_leaves_nothing_unfinished() -> None:
    world = World()
    for number in range(LIMIT):
        await world.remember(str(number))
    for number in range(3):
        killed: list[Any] = [KilledError(), KilledError()]
        world.api.fail("delete", f"{PLACE}/{oldest(world)}", *killed)
        for _ in range(2):
            with pytest.raises(KilledError):
                await world.remember(f"new {number}")
            assert len(world.entries()) == LIMIT + 1
            world.restart()
        await world.remember(f"new {number}")
        assert len(world.entries()) == LIMIT
    assert max(world.numbers().values()) == LIMIT + 3


def oldest(world: World) -> str:
    name: str = min(world.entries().values(), key=lambda body: int(body["revision"]))["metadata"]["name"]
    return name


async def test_entries_of_another_resource_of_the_same_name_do_not_count() -> None:
    world = World()
    await world.history.remember(resource("old", uid="cr-0"))
    await world.remember("new")
    assert world.numbers() == {"old": 1, "new": 1}
    assert await last_valid(world, resource("broken")) == b'{"image":"new"}'
    outcome = await world.remember("old")
    assert [key.name for key in outcome.waiting] == [entry_name(resource("old"))], "garbage collection removes it"
    assert world.numbers()["old"] == 1


async def test_an_object_of_somebody_else_under_the_name_is_left_alone() -> None:
    world = World()
    name = entry_name(resource("a"))
    theirs = world.api.put(
        f"{PLACE}/{name}", {"metadata": {"name": name, "namespace": "ns"}, "data": {}, "revision": 7}
    )
    outcome = await world.remember("a")
    assert [failure.reason for failure in outcome.failures] == ["NameConflict"]
    assert world.entries()[f"{PLACE}/{name}"] == theirs


async def test_an_entry_that_lost_its_labels_gets_them_back() -> None:
    world = World()
    for image in "ab":
        await world.remember(image)
    path = f"{PLACE}/{entry_name(resource('a'))}"
    body = world.api.objects[path]
    world.api.put(path, {**body, "metadata": {**body["metadata"], "labels": None}})
    world.api.objects[path]["metadata"].pop("labels")
    world.restart()
    assert (await world.remember("a")).settled
    assert world.api.objects[path]["metadata"]["labels"][names.LABEL_SPEC]
    assert world.numbers() == {"a": 3, "b": 2}


async def test_a_refusal_is_an_outcome_and_nothing_is_deleted_then() -> None:
    world = World()
    for number in range(LIMIT):
        await world.remember(str(number))
    world.api.fail("create", PLACE, ApiError(403, "Forbidden", "no"))
    outcome = await world.remember("new")
    assert [(failure.kind, failure.reason) for failure in outcome.failures] == [("ControllerRevision", "Forbidden")]
    assert len(world.entries()) == LIMIT


async def test_a_number_that_a_stranger_wrote_stops_nothing() -> None:
    world = World()
    await world.remember("a")
    for body in world.entries().values():
        body["revision"] = 2**63 - 1
    world.restart()
    await world.remember("b")
    assert world.numbers() == {"a": 2**63 - 1, "b": 1}
    await world.remember("a")
    assert world.numbers() == {"a": 2, "b": 1}


async def test_the_last_valid_spec_is_read_from_the_newest_entry() -> None:
    world = World()
    for image in "abca":
        await world.remember(image)
    world.restart()
    world.api.requests.clear()
    assert await last_valid(world, resource("broken")) == b'{"image":"a"}'
    assert world.api.requests == {"get": 1}


async def test_a_stored_spec_in_the_history_is_not_replaced_by_an_older_one() -> None:
    world = World()
    for image in "ab":
        await world.remember(image)
    assert await last_valid(world, resource("b")) is None
    assert await last_valid(World(), resource("b")) is None, "no history at all"


@pytest.mark.parametrize(
    "forged",
    [
        {"data": {"spec": {"image": "evil"}}},
        {"data": {"spec": None}},
        {"data": {"spec": ["a"]}},
        {"data": ["spec"]},
        {"data": None},
        {"data": {"spec": {"image": "x" * 200_000}}},
    ],
    ids=lambda forged: str(forged)[:40],
)
async def test_content_that_does_not_fit_its_name_is_no_spec(forged: Json) -> None:
    world = World()
    await world.remember("a")
    (path,) = world.entries()
    world.api.objects[path] |= forged
    assert await last_valid(world, resource("broken")) is None


def test_a_spec_within_its_name_is_still_bounded_in_size_and_depth() -> None:
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    for spec in ({"image": "x" * 200_000}, {"image": deep}):
        record = ResourceRecord(OWNER, "cr-1", 1, 1, False, compact(spec), b"{}")
        body = {
            "metadata": {"name": entry_name(record), "namespace": "ns", "ownerReferences": [reference()]},
            "data": {"spec": spec},
        }
        assert spec_of(body, "cr-1") is None
        body["data"] = {"spec": {"image": "a"}}
        body["metadata"]["name"] = entry_name(resource("a"))  # type: ignore[index]
        assert spec_of(body, "cr-1") == {"image": "a"}
        assert spec_of(body, "cr-2") is None


def test_the_shape_of_a_spec_leaves_out_the_replica_count_of_decode_alone() -> None:
    spec = {"parameter": {"replicas": 1}, "decode": {"replicas": 2, "image": "a"}}
    assert shape_of(spec) == shape_of({**spec, "decode": {"image": "a"}})
    assert shape_of(spec) != shape_of({**spec, "parameter": {"replicas": 2}})
    assert shape_of({}) == shape_of({"decode": {"replicas": 3}})


async def test_the_cache_keeps_no_spec_and_own_writes_start_no_reconcile() -> None:
    world = World()
    await world.remember("a" * 10_000)
    (body,) = world.entries().values()
    assert world.cache.observe(CONTROLLER_REVISION, deepcopy(body), deleted=False) == set()
    assert world.cache.observe(CONTROLLER_REVISION, deepcopy(body), deleted=True) == {OWNER}
    assert world.cache.observe(CONTROLLER_REVISION, newer(body), deleted=False) == {OWNER}
    (record,) = world.cache.history.owned_by(OWNER)
    assert b"aaaa" not in repr(record).encode()
    assert world.cache.children_of(OWNER) == [], "pruning children leaves the history alone"


def newer(body: Json) -> Json:
    version = str(int(body["metadata"]["resourceVersion"]) + 10)
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version, "uid": "u2"}}


@given(st.lists(st.tuples(st.sampled_from("abcdefghijklmno"), st.integers(0, 2)), max_size=60))
def test_the_newest_entry_of_each_shape_is_kept_up_to_the_limit(edits: list[tuple[str, int]]) -> None:
    entries = [
        history_record(
            {
                "metadata": {
                    "name": f"llama-{shape}{count}",
                    "namespace": "ns",
                    "uid": f"{shape}{count}",
                    "resourceVersion": "1",
                    "labels": {names.LABEL_SPEC: shape},
                },
                "revision": number + 1,
            }
        )
        for number, (shape, count) in enumerate(edits)
    ][::-1]
    doomed = list(superfluous(entries))
    kept = [entry for entry in entries if entry not in doomed]
    assert len(kept) == min(LIMIT, len({shape for shape, _ in edits}))
    assert kept[:1] == entries[:1]
    assert len({entry.shape for entry in kept}) == len(kept)
