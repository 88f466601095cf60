"""Why the load of a role is not known yet. The metrics API sends these texts, and HPAs quote them in their conditions.

While one of them holds, nothing is wrong: pods start, or the operator reads them for the first time.

Tests: tests/loadmetrics/test_signals.py, tests/planning/scaling/test_condition.py
"""

from typing import Final

NO_POD_READY: Final = "no pod is ready yet"
NOT_READ_YET: Final = "the operator reads the metrics of the ready pods for the first time"
NO_RATE_YET: Final = "needs two readings some seconds apart"

_PASSING: Final = (NO_POD_READY, NOT_READ_YET, NO_RATE_YET)


def passes(message: str) -> bool:
    """Whether an error of the metrics API ends by itself once pods are ready and have been read."""
    return any(text in message for text in _PASSING)
