"""The tests of the router run on the event loop of its process."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Only uvloop. Its timers differ from asyncio's: one of less than 0.5 ms is no `TimerHandle`."""
    return {"uvloop": uvloop.new_event_loop}
