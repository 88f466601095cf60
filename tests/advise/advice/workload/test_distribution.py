"""Draws from distributions of lengths: bounds, mean, percentiles."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference_advise.advice.workload.bounds import MOST_TOKENS
from pdinference_advise.advice.workload.distribution import Quantiles
from pdinference_advise.advice.workload.lengths import parse
from tests.advise.advice.workload.test_lengths import LENGTHS

DRAWS = 20_000


def draws(text: str, number: int = DRAWS) -> list[int]:
    distribution, random = parse(text, "x"), Random(1)  # noqa: S311 - no secret
    return sorted(distribution.draw(random) for _ in range(number))


@given(LENGTHS, st.integers())
def test_draws_and_mean_are_within_the_bounds(text: str, seed: int) -> None:
    distribution, random = parse(text, "x"), Random(seed)  # noqa: S311 - no secret
    found = [distribution.draw(random) for _ in range(50)]
    assert 1 <= distribution.least <= min(found) <= max(found) <= distribution.most <= MOST_TOKENS
    assert distribution.least - 1 <= distribution.mean <= distribution.most + 1


@pytest.mark.parametrize(
    "text",
    [
        "1000",
        "1..9",
        "500..1500",
        "800~3000",
        "1~1",
        "2000~2000",
        "5000000~9000000",
        "1~30",
        "p50=800,p90=3000,p99=9000",
        "min=1,p50=20,max=20",
        "80%:500..1500+20%:p50=8000,p90=30000",
    ],
)
def test_the_mean_is_that_of_many_draws(text: str) -> None:
    found = draws(text)
    mean = sum(found) / DRAWS
    error = math.sqrt(sum((length - mean) ** 2 for length in found)) / DRAWS
    # Rounding to whole tokens shifts the mean by up to half a token where lengths are that short.
    assert parse(text, "x").mean == pytest.approx(mean, abs=5 * error + 0.5)


@pytest.mark.parametrize(
    ("text", "percentiles"),
    [
        ("800~3000", {50: 800, 90: 3000}),
        ("p50=800,p90=3000,p99=9000", {50: 800, 90: 3000, 99: 9000}),
        ("min=100,p50=1000,max=10000", {25: 316, 50: 1000, 75: 3162}),
        ("1000..2000", {10: 1100, 50: 1500, 90: 1900}),
        ("90%:100+10%:200", {50: 100, 89: 100, 91: 200}),
    ],
)
def test_draws_have_the_percentiles_of_the_text(text: str, percentiles: dict[int, int]) -> None:
    found = draws(text, 100_000)
    for percentile, tokens in percentiles.items():
        assert found[len(found) * percentile // 100] == pytest.approx(tokens, rel=0.05)


def test_each_length_of_a_range_is_equally_likely() -> None:
    found = draws("3..5", 30_000)
    assert {length: found.count(length) / 30_000 for length in set(found)} == pytest.approx(
        {3: 1 / 3, 4: 1 / 3, 5: 1 / 3}, abs=0.01
    )


def test_a_quantile_that_jumps_leaves_a_gap() -> None:
    found = Quantiles(((0.0, 10.0), (0.5, 10.0), (0.5, 1000.0), (1.0, 1000.0)))
    random = Random(1)  # noqa: S311 - no secret
    assert {found.draw(random) for _ in range(1000)} == {10, 1000}
    assert found.mean == 505


@given(st.floats(1, 100_000))
def test_lengths_scale_to_another_mean(mean: float) -> None:
    found = Quantiles(((0.0, 100.0), (0.9, 200.0), (1.0, 5000.0))).with_mean(mean)
    assert found.points[0][1] >= 1
    if found.points[0][1] > 1:  # shorter ones stay at one token
        assert found.mean == pytest.approx(mean)
