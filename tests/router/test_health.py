"""/health on the port for clients: whether requests are answered now."""

from pathlib import Path

import pytest

from pdinference.router.keys import Keys
from tests.router.engines import Fleet, fleet

PATHS = ("/health", "/readiness")


async def health(world: Fleet) -> set[int]:
    found = set()
    for path in PATHS:
        async with world.client.get(world.url + path) as answer:
            found.add(answer.status)
    return found


@pytest.mark.parametrize(
    ("when_no_prefill", "without_p"), [("Serve", 200), ("Wait", 503), ("Fail", 503)], ids=["serve", "wait", "fail"]
)
async def test_it_says_whether_the_pods_that_a_request_needs_are_there(when_no_prefill: str, without_p: int) -> None:
    async with fleet("p", "d", rules={"when_no_prefill": when_no_prefill}) as world:
        assert await health(world) == {200}
        world.observe("p")
        assert await health(world) == {without_p}
        world.observe("d")
        assert await health(world) == {503}
        world.observe()
        assert await health(world) == {200}


async def test_a_pod_that_refused_a_request_does_not_count_while_it_is_paused() -> None:
    async with fleet("p", "d", rules={"max_wait": 0.1}) as world:
        await world["d"].stop()
        assert (await world.post())[0] == 504
        assert await health(world) == {503}


async def test_it_needs_no_key_and_is_no_request(tmp_path: Path) -> None:
    """Otherwise the probes of a waiting batch would keep P and D from scaling to zero."""
    async with fleet("p", "d", keys=Keys(tmp_path, {})) as world:
        assert (await world.post())[0] == 401
        assert await health(world) == {200}
        assert await world.metric("pdinference_router_requests_total") == 1
        assert not world["p"].raw + world["d"].raw
