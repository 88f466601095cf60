"""What readings of the counter of an engine's steps show."""

from collections.abc import Sequence

from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router.steps import EngineProgress, Steps, read_progress
from tests.router.engines import fleet, status

Reading = tuple[float | None, float, float]


def after(*readings: Reading) -> Steps:
    steps = Steps()
    for reading in readings:
        steps.read(*reading)
    return steps


def seconds(readings: Sequence[Reading], since: float = 0.0) -> float:
    return after(*readings).without(since)


def test_the_time_without_a_step_is_between_readings_of_the_same_count() -> None:
    same: list[Reading] = [(7.0, 100.0, 101.0), (7.0, 110.0, 113.0)]
    assert seconds(same) == 9, "a step may have been taken before the first answer and after the second question"
    assert seconds([*same, (8.0, 120.0, 121.0)]) < 0
    assert seconds([*same, (8.0, 120.0, 121.0), (8.0, 130.0, 131.0)]) == 9


def test_no_reading_shows_nothing() -> None:
    assert seconds([]) <= 0
    assert seconds([(7.0, 100.0, 101.0)]) <= 0
    assert seconds([(None, 100.0, 101.0), (None, 200.0, 201.0)]) <= 0


def test_a_reading_that_fails_takes_nothing_back() -> None:
    steps = after((7.0, 100.0, 101.0), (None, 110.0, 115.0))
    assert steps.tried_at == 110
    steps.read(7.0, 120.0, 121.0)
    assert steps.without() == 19


def test_the_time_before_a_request_does_not_count() -> None:
    assert seconds([(7.0, 100.0, 101.0), (7.0, 160.0, 161.0)], since=150) == 10


async def test_the_progress_of_a_servers_engines_is_added() -> None:
    async with fleet("p", "d") as world:
        (pod,) = (pod for pod in world.pods if pod.observed.name == "d")
        steps = "".join(f'vllm:iteration_tokens_total_count{{engine="{one}"}} {one + 3}\n' for one in (0, 1))
        world["d"].metrics = steps
        assert await read_progress(pod, Share()) == EngineProgress(7, 0)
        world["d"].metrics = (
            steps + 'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n'
        )
        assert await read_progress(pod, Share()) == EngineProgress(7, 0.75)
        world["d"].metrics = "vllm:num_requests_running 1\n"
        assert await read_progress(pod, Share()) is None
        world["d"].metrics_fault = status(500)
        assert await read_progress(pod, Share()) is None
