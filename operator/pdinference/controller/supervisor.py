"""Supervises the tasks that run as long as the process: /healthz fails when one ends by itself.

Such a task is not restarted in place, because the state after an unexpected end is unknown. The kubelet restarts the
container with back-off, which shows in the pod, and a new process starts from the state in the cluster. Responses of
pods, and an unavailable API server, must not end such a task.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from pdinference.controller.metrics import Metrics

_LOG = logging.getLogger(__name__)


class Supervisor:
    """All long-lived tasks of one process.

    Attributes:
        failed: Names of tasks that ended by themselves.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.failed: list[str] = []
        self._metrics = metrics

    @asynccontextmanager
    async def running(self, name: str, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run a task until the end of the block."""
        task = self.start(name, work)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    def start(self, name: str, work: Coroutine[Any, Any, None], *, may_return: bool = False) -> asyncio.Task[None]:
        """Start a task that runs until it is cancelled.

        Args:
            name: For /healthz, logs and metrics.
            work: The function to run.
            may_return: Whether it may also end without an exception.
        """
        self._metrics.task_failures.labels(name)  # shown as 0 from the start
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda ended: self._ended(ended, may_return=may_return))
        return task

    def _ended(self, task: asyncio.Task[None], *, may_return: bool) -> None:
        if task.cancelled():
            return
        name, error = task.get_name(), task.exception()
        if error is None and may_return:
            return
        _LOG.error("Background task %s ended", name, exc_info=error)
        self._metrics.task_failures.labels(name).inc()
        self.failed.append(name)
