"""Warnings about pods at a bounded rate: a tenant may let pods fail as often as it likes."""

import logging
import math
import time
from collections.abc import Callable
from typing import Final

_SECONDS: Final = 10.0


class SparseLog:
    """At most one warning in ten seconds for each namespace; metrics count all."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._warned: dict[str, float] = {}

    def warning(self, message: str, *, namespace: str, pod: str, fault: BaseException | None = None) -> None:
        """Log this, unless a warning about the namespace was logged a moment ago.

        Args:
            message: What is wrong.
            namespace: The pod's.
            pod: Its name.
            fault: The operator's own fault, whose traceback is logged.
        """
        now = self._clock()
        if now - self._warned.get(namespace, -math.inf) < _SECONDS:
            return
        self._warned = {name: at for name, at in self._warned.items() if now - at < _SECONDS} | {namespace: now}
        self._log.warning("%s", message, extra={"namespace": namespace, "pod": pod}, exc_info=fault)
