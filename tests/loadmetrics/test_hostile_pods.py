"""Responses of hostile pods lead to a reading or to a reason, and to no other error."""

import asyncio

import pytest

from pdinference.loadmetrics.scraping.exposition import PREFIX, Exposition, Reading
from pdinference.loadmetrics.scraping.fetch import Share, fetch
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from tests.loadmetrics.hostile import READABLE, UNREADABLE, dense, pods, saying
from tests.loadmetrics.hostile import answer as whole
from tests.loadmetrics.readings import is_sound


async def read(port: int, *, seconds: float = 30, address: str = "127.0.0.1") -> Reading:
    found = Exposition()
    await fetch(address, port, found.take, prefix=PREFIX, share=Share(), seconds=seconds)
    return found.reading()


@pytest.mark.parametrize("kind", READABLE)
async def test_an_answer_of_odd_lines_is_read(kind: str) -> None:
    async with pods(READABLE[kind]) as port:
        assert is_sound(await read(port))


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_an_answer_that_cannot_be_read_has_a_reason(kind: str) -> None:
    reason, answering = UNREADABLE[kind]
    async with pods(answering) as port:
        with pytest.raises(UnreadableError) as caught:
            await read(port, seconds=0.5 if reason == "timeout" else 30)
    assert caught.value.reason == reason
    assert len(str(caught.value)) < 500


async def test_a_metric_with_a_number_out_of_range_is_unknown() -> None:
    """The others are not."""
    async with pods(READABLE["NaN"]) as port:
        found = await read(port)
    assert found.waiting is None
    assert (found.running, found.generation_tokens) == (2, 1189)
    async with pods(READABLE["missing le"]) as port:
        found = await read(port)
    assert found.inter_token is None
    assert found.first_token is not None


async def test_a_size_of_5000_digits_is_unknown() -> None:
    async with pods(READABLE["5,000 digits"]) as port:
        assert (await read(port)).cache is None


async def test_a_line_that_is_too_long_is_left_out() -> None:
    async with pods(READABLE["line of 2 MiB"]) as port:
        assert (await read(port)).waiting == 6


async def test_nobody_listens() -> None:
    with pytest.raises(UnreadableError) as caught:
        await read(9)
    assert caught.value.reason == "refused"


@pytest.mark.parametrize("address", ["models.example", "", "127.0.0.1:80", "::1%lo0x"])
async def test_what_is_no_address_is_not_resolved(address: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        await read(9, address=address)
    assert caught.value.reason in {"unreachable", "refused"}


async def test_an_answer_at_all_limits_leaves_the_event_loop_free() -> None:
    """Each piece of 16 KiB ends in a pause. A machine that is busy only makes the bound easier to miss: it is wide."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with pods(saying(whole(dense()))) as port:
        counting = asyncio.create_task(count())
        assert (await read(port)).waiting == len(dense().splitlines())
        counting.cancel()
    assert turns > 2**20 / 16384
