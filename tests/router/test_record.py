"""Metrics of the router."""

import time

import pytest
from prometheus_client import CollectorRegistry, Counter

from pdinference.router.record import Overlap


def test_activities_that_overlap_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    registry = CollectorRegistry()
    overlap = Overlap(Counter("busy_seconds", "", registry=registry))
    with overlap.one():
        now += 3
        with overlap.one():
            now += 2
        now += 1
        overlap.count()
        assert registry.get_sample_value("busy_seconds_total") == 6, "also while one is under way"
    now += 50
    with overlap.one():
        now += 4
    assert registry.get_sample_value("busy_seconds_total") == 10
