"""A background task that ends unexpectedly is reported in /healthz, in a metric and in the log."""

import asyncio

import pytest

from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor

SAMPLE = "pdinference_background_task_failures_total"


async def forever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise RuntimeError("a bug")


async def returns() -> None:
    """Ends at once."""


def failures(metrics: Metrics, task: str) -> float | None:
    return metrics.registry.get_sample_value(SAMPLE, {"task": task})


async def test_a_task_that_fails_is_named_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    supervisor = Supervisor(metrics)
    async with supervisor.running("scraper", fails()), supervisor.running("activities", forever()):
        assert failures(metrics, "scraper") == 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert supervisor.failed == ["scraper"]
    assert failures(metrics, "scraper") == 1
    assert failures(metrics, "activities") == 0
    assert "RuntimeError: a bug" in caplog.text


async def test_a_task_that_returns_has_failed_too() -> None:
    supervisor = Supervisor(Metrics())
    await supervisor.start("resync", returns())
    assert supervisor.failed == ["resync"]


async def test_a_task_that_is_stopped_has_not_failed() -> None:
    supervisor = Supervisor(Metrics())
    async with supervisor.running("scraper", forever()):
        pass
    await supervisor.start("worker-0", returns(), may_return=True)
    assert supervisor.failed == []
