"""The result of a reconcile, and the metrics of its writes."""

import logging
from dataclasses import dataclass

from pdinference.cluster.outcome import Outcome
from pdinference.controller.metrics import Metrics

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile for its key.

    Attributes:
        retry: Whether to retry after a back-off.
        retry_after: Lowest delay of the retry in seconds, from the API server's Retry-After.
        requeue_after: Seconds until the next reconcile without an event; None for never.
    """

    retry: bool = False
    retry_after: float = 0.0
    requeue_after: float | None = None


def count_writes(metrics: Metrics, *written: Outcome, pruned: Outcome | None = None) -> None:
    """Count writes and failures, and log the failures."""
    gone = pruned or Outcome()
    for key in (key for outcome in written for key in outcome.applied):
        metrics.applies.labels(key.kind).inc()
    for key in gone.applied:
        metrics.prunes.labels(key.kind).inc()
    for failure in (failure for outcome in (*written, gone) for failure in outcome.failures):
        metrics.errors.labels(failure.reason).inc()
        _LOG.warning("%s", failure, extra={"reason": failure.reason})
