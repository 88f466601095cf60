"""What a reconcile did: counted, logged, and what follows from it."""

import logging
from dataclasses import dataclass

from pdinference.cluster.outcome import Outcome
from pdinference.controller.metrics import Metrics

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """What to do with the key afterwards.

    Attributes:
        retry: Come back after a back-off.
        retry_after: Seconds that the API server asked to wait.
        requeue_after: Look again after so many seconds, although nothing failed; None for never.
    """

    retry: bool = False
    retry_after: float = 0.0
    requeue_after: float | None = None


def count_writes(metrics: Metrics, *written: Outcome, pruned: Outcome | None = None) -> None:
    """Count what was written and what was refused, and log the latter."""
    gone = pruned or Outcome()
    for key in (key for outcome in written for key in outcome.applied):
        metrics.applies.labels(key.kind).inc()
    for key in gone.applied:
        metrics.prunes.labels(key.kind).inc()
    for failure in (failure for outcome in (*written, gone) for failure in outcome.failures):
        metrics.errors.labels(failure.reason).inc()
        _LOG.warning("%s", failure, extra={"reason": failure.reason})
