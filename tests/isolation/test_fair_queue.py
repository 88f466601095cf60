"""All tenants get their turn."""

from pdinference.isolation.fair_queue import FairQueue


async def test_turns_go_round() -> None:
    turns: FairQueue[str] = FairQueue(most=10, most_of_one=4)
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        assert turns.put(item[0], item)
    assert [await turns.get() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_room_is_limited_for_one_and_for_all() -> None:
    turns: FairQueue[int] = FairQueue(most=3, most_of_one=2)
    assert [turns.put("a", 1), turns.put("a", 2), turns.put("a", 3)] == [True, True, False]
    assert [turns.put("b", 1), turns.put("b", 2)] == [True, False]
    await turns.get()
    assert turns.put("c", 1)
