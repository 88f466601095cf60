"""Loads that others published, against the predictions and the page."""

import math
from statistics import median

import pytest

from benchmarks.advise.beside_published import errors_by_kind, lines
from benchmarks.advise.errors import METRICS
from benchmarks.advise.published import LOADS, Load
from benchmarks.advise.published_predicted import built_of
from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.errors import ERRORS
from tests.conftest import REPOSITORY


def test_the_page_has_what_is_predicted_for_published_loads() -> None:
    """A change of the model shows in the page, where the published times stand beside it."""
    page = (REPOSITORY / "benchmarks/results/advise.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines() if line and line not in page] == []


@pytest.mark.parametrize("load", LOADS, ids=lambda load: f"{load.source.name}-{load.prompt}-{load.rate:g}")
def test_every_published_load_counts_as_extrapolated(load: Load) -> None:
    assert built_of(load).source is TimeSource.EXTRAPOLATED


def test_the_stated_errors_are_no_smaller_than_those_of_half_of_the_publications() -> None:
    of = ERRORS[TimeSource.EXTRAPOLATED]
    stated = (of.ttft_p50, of.ttft_p99, of.tpot_p50, of.tpot_p99, of.gap_p99, of.whole_p50)
    for name, most in zip(METRICS, stated, strict=True):
        medians = [median(errors[name]) for errors in errors_by_kind().values() if errors[name]]
        assert median(medians) <= most, name


def test_published_loads_keep_the_rules_of_their_choice() -> None:
    for load in LOADS:
        assert load.source.address.startswith("https://")
        assert load.source.vllm >= "0.11"
        assert all(math.isfinite(time) and time > 0 for time in load.measured if time is not None)
        assert load.answer >= 100
