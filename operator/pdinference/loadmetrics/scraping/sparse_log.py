"""Rate-limited warnings about pods, because tenants can cause any number of failures.

Tests: tests/loadmetrics/test_rounds.py, tests/loadmetrics/test_scrape.py
"""

import logging
import math
import time
from collections.abc import Callable
from typing import Final

_SECONDS: Final = 10.0


class SparseLog:
    """Logs at most one warning per namespace in 10 s. Metrics count all failures."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._warned: dict[str, float] = {}

    def warning(self, message: str, *, namespace: str, pod: str, fault: BaseException | None = None) -> None:
        """Log a warning, unless the namespace exceeds the rate limit.

        Args:
            message: The message.
            namespace: Namespace of the pod.
            pod: Name of the pod.
            fault: Internal error of the operator, logged with its traceback.
        """
        now = self._clock()
        if now - self._warned.get(namespace, -math.inf) < _SECONDS:
            return
        self._warned = {name: at for name, at in self._warned.items() if now - at < _SECONDS} | {namespace: now}
        self._log.warning("%s", message, extra={"namespace": namespace, "pod": pod}, exc_info=fault)
