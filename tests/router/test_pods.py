"""Waiting for pods that were paused after a failure."""

import asyncio
from itertools import count

import pytest

from pdinference.router.pod import Observed
from pdinference.router.pods import Pods
from tests.router.engines import D
from tests.waiting import LONG_S

FOR_EVER = 1e6


def paused(seconds_per_look: float) -> Pods:
    """A D pod after its first failure, which pauses it for 0.25 s. Each look at the clock takes a while."""
    pods = Pods((number * seconds_per_look for number in count()).__next__)
    pods.observe({"d": Observed("d", "d", D, "", ready=True)})
    pods.failed(next(iter(pods)))
    return pods


@pytest.mark.parametrize("milliseconds", range(40, 250, 30))
async def test_the_end_of_a_pause_is_not_missed_whenever_it_comes(milliseconds: int) -> None:
    """It may come between two looks at the clock. Nothing else would wake the request until all its time is over."""
    pods = paused(milliseconds / 1000)
    assert await asyncio.wait_for(pods.wait(lambda: pods.available(D), until=FOR_EVER), LONG_S)


async def test_a_wait_ends_when_its_time_is_over() -> None:
    pods = paused(0.05)
    assert not await asyncio.wait_for(pods.wait(lambda: False, until=0.2), LONG_S)
