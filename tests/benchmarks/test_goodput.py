"""Goodput on GPUs: which requests keep the bounds, and which rates are tried."""

from typing import Any

import pytest

from benchmarks.on_gpu.goodput import Bounds, next_load
from benchmarks.on_gpu.loads import Load, load_of

Each = tuple[float, float, float, int, int, int]


def one(first: float, gap: float, *, sent: float = 10, prompt: int = 300, turn: int = 0) -> Each:
    return sent, first, first + 9 * gap, 10, prompt, turn


def result(*each: Each, incomplete: int = 0) -> dict[str, Any]:
    return {"each": list(each), "warm_up": 5, "incomplete": incomplete}


@pytest.fixture
def bounds() -> Bounds:
    found = Bounds()
    found.learn(result(one(0.1, 0.005), one(0.02, 0.005, prompt=4550, turn=1)))
    return found


@pytest.mark.parametrize(
    ("request_", "kept"),
    [
        (one(0.399, 0.0149), True),
        (one(0.401, 0.005), False),
        (one(0.1, 0.0151), False),
        (one(0.081, 0.005, prompt=4900, turn=2), False),
    ],
)
def test_a_request_keeps_both_bounds_of_its_prompt(bounds: Bounds, request_: Each, kept: bool) -> None:
    assert bounds.share_kept(result(request_)) == kept


def test_requests_of_the_warm_up_do_not_count_and_incomplete_ones_keep_nothing(bounds: Bounds) -> None:
    early, good = one(9, 9, sent=4), one(0.1, 0.005)
    assert bounds.share_kept(result(early, good, incomplete=3)) == 0.25


@pytest.mark.parametrize(
    ("full", "tried"), [(11, [8, 10, 12.5]), (7, [8, 6.4]), (1e9, [8, 10, 12.5, 15.625]), (0, [8, 6.4, 5.12, 4.096])]
)
def test_rates_are_tried_until_they_cross_95_percent_or_four_times(full: float, tried: list[float]) -> None:
    found, shares = list[float](), list[float]()
    load: Load | None = load_of("300/700@8+1+1")
    while load is not None:
        found.append(load.rate)
        shares.append(0.95 if load.rate <= full else 0.94)
        load = next_load(load, shares)
    assert found == tried
