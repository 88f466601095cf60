"""What is counted and logged of the writes of a reconcile."""

import logging

import pytest

from pdinference.cluster.kinds import ChildKey
from pdinference.cluster.outcome import Outcome
from pdinference.controller.metrics import Metrics
from pdinference.controller.results import count_writes
from pdinference.planning.observed import Failure

_P = ChildKey("StatefulSet", "models", "llama-parameter-a")
_D = ChildKey("Deployment", "models", "llama-decode-a")
_OLD = ChildKey("Deployment", "models", "llama-decode-b")


def test_writes_count_by_kind_and_failures_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    forbidden = Failure("HorizontalPodAutoscaler", "llama-decode", "Forbidden", "may not be written.")
    kept = Failure("StatefulSet", "llama-parameter-b", "Timeout", "was not deleted.", transient=True)
    with caplog.at_level(logging.WARNING):
        count_writes(
            metrics,
            Outcome(applied=[_P, _D]),
            Outcome(applied=[_D], failures=[forbidden]),
            pruned=Outcome(applied=[_OLD], failures=[kept]),
        )

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"pdinference_{name}_total", labels)

    assert value("applies", kind="StatefulSet") == 1
    assert value("applies", kind="Deployment") == 2
    assert value("prunes", kind="Deployment") == 1
    assert value("prunes", kind="StatefulSet") is None, "it was not deleted"
    assert [value("reconcile_errors", reason=reason) for reason in ("Forbidden", "Timeout")] == [1, 1]
    assert [record.getMessage() for record in caplog.records] == [str(forbidden), str(kept)]


def test_nothing_pruned_is_no_prune() -> None:
    metrics = Metrics()
    count_writes(metrics, Outcome())
    assert not any(
        sample.name.endswith("_total") and sample.labels for one in metrics.registry.collect() for sample in one.samples
    )
