"""Shares of clients: one cannot take what the others need."""

import asyncio

import pytest

from pdinference.router.room import FullError, Room, Shares, owner_of


def test_one_owner_gets_three_quarters() -> None:
    shares = Shares(100)
    shares.take("a", shares.largest)
    with pytest.raises(FullError):
        shares.take("a", 1)


@pytest.mark.parametrize("owners", [1, 2, 5, 20])
def test_whatever_owners_take_another_one_finds_room(owners: int) -> None:
    shares = Shares(10_000)
    for _ in range(10_000):
        for owner in range(owners):
            if shares.fits(str(owner), 1):
                shares.take(str(owner), 1)
    assert shares.held <= 10_000
    assert shares.fits("new", 10_000 // (3 * owners + 2) // 2)
    for owner in range(owners):
        shares.give_back(str(owner), 1)
    assert shares.fits("0", 1)


async def test_who_finds_no_room_waits_for_it() -> None:
    room = Room(100, seconds=30.0)
    await room.take("a", 70)
    waiting = asyncio.create_task(room.take("a", 60))
    await asyncio.sleep(0)
    await room.take("b", 10)  # others do not wait
    assert not waiting.done()
    room.give_back("a", 70)
    await asyncio.wait_for(waiting, 10)
    assert room.held == 70


async def test_it_does_not_wait_for_ever() -> None:
    room = Room(100, seconds=0.01)
    await room.take("a", 70)
    with pytest.raises(FullError):
        await room.take("a", 70)
    assert room.held == 70


async def test_few_wait_and_one_owner_leaves_places_to_others() -> None:
    room = Room(100, seconds=30.0)
    await room.take("a", 70)
    await room.take("b", 20)
    waiting = [asyncio.create_task(room.take("a", 70)) for _ in range(48)]
    await asyncio.sleep(0)
    with pytest.raises(FullError):
        await room.take("a", 70)
    other = asyncio.create_task(room.take("b", 70))
    await asyncio.sleep(0)
    assert not other.done()
    for task in (*waiting, other):
        task.cancel()
    await asyncio.gather(*waiting, other, return_exceptions=True)


@pytest.mark.parametrize(
    ("peer", "owner"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3::4", 5, 0, 0), "2001:db8:1:2::"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::"),
        (None, ""),
    ],
)
def test_owners_by_address(peer: object, owner: str) -> None:
    assert owner_of(peer) == owner
