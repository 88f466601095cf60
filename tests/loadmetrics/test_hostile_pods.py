"""Responses of hostile pods lead to a reading or to a reason, and to no other error."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from pdinference.api.v1alpha1.roles.role import MOST_RANKS
from pdinference.loadmetrics.scraping.exposition import PREFIX, Exposition, Reading
from pdinference.loadmetrics.scraping.fetch import Share, fetch
from pdinference.loadmetrics.scraping.http_answer import LONGEST_BODY
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from tests.loadmetrics.hostile import READABLE, UNREADABLE, dense, pods, saying
from tests.loadmetrics.hostile import answer as whole
from tests.loadmetrics.readings import is_sound

RECORDED: Final = Path(__file__).parent / "recorded"


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


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("NaN", {"waiting": None, "running": 2, "generation_tokens": 1189}),
        ("5,000 digits", {"cache": None}),
        ("line of 2 MiB", {"waiting": 6}),
    ],
)
async def test_what_is_out_of_range_is_unknown_and_the_rest_is_read(kind: str, known: dict[str, Any]) -> None:
    async with pods(READABLE[kind]) as port:
        found = await read(port)
    assert {name: getattr(found, name) for name in known} == known


async def test_a_histogram_without_a_bound_is_unknown() -> None:
    async with pods(READABLE["missing le"]) as port:
        found = await read(port)
    assert found.inter_token is None
    assert found.first_token is not None


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
    assert turns > len(dense()) / 16384


async def test_as_many_ranks_as_there_may_be_are_read() -> None:
    """vLLM has all data-parallel ranks of an instance on one page."""
    one = (RECORDED / "decode-later.txt").read_bytes()
    page = b"".join(one.replace(b'engine="0"', b'engine="%d"' % rank) for rank in range(MOST_RANKS))
    assert LONGEST_BODY / 4 < len(page) < LONGEST_BODY
    async with pods(saying(whole(one))) as port:
        alone = await read(port)
    async with pods(saying(whole(page))) as port:
        found = await read(port)
    assert (found.running, found.prompt_tokens) == (
        (alone.running or 0) * MOST_RANKS,
        (alone.prompt_tokens or 0) * MOST_RANKS,
    )
    assert found.prompt_tokens
