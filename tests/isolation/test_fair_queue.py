"""All clients and all tenants get their turn."""

from pdinference.isolation.fair_queue import FairQueue


async def test_turns_go_round() -> None:
    turns: FairQueue[str] = FairQueue(most=10, most_of_one=4)
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        assert turns.put(item[0], item) is None
    assert [await turns.get() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_groups_take_turns_before_their_sources_do() -> None:
    turns: FairQueue[str] = FairQueue(most=10, most_of_one=4)
    for source in ("invented-1", "invented-2", "invented-3"):
        assert turns.put(source, source, group="10.0.0.9") is None
    for item in ("a1", "a2", "b1"):
        assert turns.put(item[0], item, group="10.0.0.1") is None
    taken = [await turns.get() for _ in range(6)]
    assert taken == ["invented-1", "a1", "invented-2", "b1", "invented-3", "a2"]


async def test_room_is_limited_for_one_and_for_all() -> None:
    turns: FairQueue[int] = FairQueue(most=3, most_of_one=2)
    assert [turns.put("a", 1), turns.put("a", 2), turns.put("a", 3)] == [None, None, 3]
    assert [turns.put("b", 4), turns.put("b", 5)] == [None, 5]
    await turns.get()
    assert turns.put("c", 6) is None


async def test_a_full_queue_has_room_for_a_client_that_asks_little() -> None:
    turns: FairQueue[str] = FairQueue(most=4, most_of_one=2)
    for number in range(4):
        assert turns.put(f"invented-{number}", f"h{number}", group="hostile") is None
    assert turns.put("invented-4", "h4", group="hostile") == "h4"
    assert turns.put("a", "a1", group="api-server") is not None, "one of the hostile client's has to go"
    assert turns.put("b", "b1", group="api-server") is not None
    assert turns.put("c", "c1", group="api-server") == "c1", "each has its half"
    assert sorted([await turns.get() for _ in range(4)])[:2] == ["a1", "b1"]


async def test_a_group_with_little_work_does_not_wait_for_the_much_of_many_others() -> None:
    turns: FairQueue[str] = FairQueue(most=100, most_of_one=4, work=len)
    for number in range(40):
        for _ in range(2):
            assert turns.put("n", "x" * 30_000, group=f"hostile-{number}") is None
    for item in ("small-1", "small-2"):
        assert turns.put("n", item, group="honest") is None
    assert [await turns.get() for _ in range(2)] == ["small-1", "small-2"]


async def test_much_work_of_a_group_is_done_among_the_little_of_others() -> None:
    turns: FairQueue[str] = FairQueue(most=1000, most_of_one=1000, work=len)
    assert turns.put("n", "x" * 50, group="large") is None
    for number in range(200):
        assert turns.put("n", f"{number:05}", group=f"small-{number % 2}") is None
    taken = [await turns.get() for _ in range(201)]
    assert 10 <= taken.index("x" * 50) <= 25, "two other groups each have done as much"


async def test_a_full_queue_has_room_for_little_work_beside_many_groups_with_much() -> None:
    turns: FairQueue[str] = FairQueue(most=64, most_of_one=4, work=len)
    for number in range(64):
        assert turns.put("n", "x" * 1000, group=f"hostile-{number}") is None
    assert turns.put("n", "x" * 1000, group="hostile-64") == "x" * 1000, "it has as much as each other one"
    assert turns.put("n", "small", group="honest") == "x" * 1000
    assert await turns.get() == "small"
