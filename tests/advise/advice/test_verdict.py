"""The verdict of made-up results."""

from dataclasses import replace
from typing import Final

import pytest

from pdinference_advise.advice.engines import Engines
from pdinference_advise.advice.estimate import estimate
from pdinference_advise.advice.layouts import EngineGroup, Layout
from pdinference_advise.advice.objectives import Objective, RequestObjectives
from pdinference_advise.advice.search import Candidate, SearchResult
from pdinference_advise.advice.trial import Keeps, Trial
from pdinference_advise.advice.verdict import Answer, FirstLimit, judge, limit_of, ranked
from pdinference_advise.advice.ways import parse_transports
from pdinference_advise.simulation.run import Use
from tests.advise.advice.questions import question

ASKED: Final = question(ttft="500ms", tpot="20ms")
GIVEN: Final = RequestObjectives(99, Objective(0.5, 0.02))
NONE: Final = RequestObjectives(99, Objective())
IDLE: Final = Use(0.3, 0.9, 0.1, 0.0, 0.1, 0.0)
FINE: Final = Trial(1.0, (0.05, 0.1), (0.006, 0.01), 0.02, (1.0, 1.5), 1.0, 0, 0, Keeps.YES, IDLE, 100.0)


def result(
    engines: int, trial: Trial = FINE, *, split: bool, bears: float | None = None, broken: Trial | None = None
) -> SearchResult:
    group = EngineGroup("NVIDIA-H200", 1, 1)
    whole = Layout(replace(group, number=engines))
    layout = Layout(replace(group, number=engines - 1), group, parse_transports(())[0]) if split else whole
    built = Engines(ASKED.document, ASKED.inputs, 1000).build(layout)
    candidate = Candidate(built, estimate(built, ASKED.demand, GIVEN), float(engines))
    return SearchResult(candidate, trial, (2.0 if trial.kept else 0.5) if bears is None else bears, broken)


def missing(keeps: Keeps = Keeps.NO) -> Trial:
    return replace(FINE, ttft=(0.4, 0.9), attainment=0.8, ttft_missed=0.2, keeps=keeps)


def test_the_cheaper_mode_wins() -> None:
    verdict = judge([result(3, split=True), result(2, split=False)], GIVEN)
    assert verdict.answer is Answer.TOGETHER
    assert verdict.why == "An unsplit model keeps the objectives with 2 GPUs; split needs 3 GPUs."
    assert verdict.best is not None
    assert not verdict.best.candidate.layout.split


def test_the_mode_that_alone_keeps_the_objectives_wins() -> None:
    verdict = judge([result(2, split=True), result(2, missing(), split=False)], GIVEN)
    assert verdict.answer is Answer.SPLIT
    assert "TTFT p99 900 ms" in verdict.why


def test_the_reason_names_the_percentile_that_is_asked_for() -> None:
    asked = replace(GIVEN, percentile=90)
    verdict = judge([result(2, split=True), result(2, missing(), split=False)], asked)
    assert "TTFT p90 900 ms" in verdict.why
    trade = judge([result(2, split=True), result(2, FINE, split=False)], replace(NONE, percentile=90))
    assert "TPOT p90" in trade.why


@pytest.mark.parametrize("rival", [missing(Keeps.PERHAPS), replace(FINE, keeps=Keeps.PROBABLY)])
def test_a_rival_within_the_error_band_is_too_close(rival: Trial) -> None:
    verdict = judge([result(2, split=True, bears=1.05), result(2, rival, split=False, bears=1.0)], GIVEN)
    assert verdict.answer is Answer.CLOSE
    assert verdict.best is not None
    assert verdict.best.candidate.layout.split


def test_a_cheaper_one_that_may_miss_is_too_close() -> None:
    sure, unsure = result(3, split=True), result(2, replace(FINE, keeps=Keeps.PROBABLY), split=False)
    assert judge([sure, unsure], GIVEN).answer is Answer.CLOSE


def test_a_mode_that_is_better_with_and_without_the_error_wins() -> None:
    unsure, sure = result(1, replace(FINE, keeps=Keeps.PROBABLY), split=False), result(2, split=False, bears=2.1)
    verdict = judge([unsure, sure, result(2, split=True, bears=1.2)], GIVEN)
    assert verdict.answer is Answer.TOGETHER
    assert verdict.best is unsure
    assert verdict.why.endswith("of the prediction, unsplit may miss them; unsplit: 2 x TP 1 keeps them.")


def test_at_one_price_the_load_that_is_borne_decides() -> None:
    more, less = result(2, split=False, bears=3.0), result(2, split=True, bears=2.0)
    verdict = judge([less, more], GIVEN)
    assert verdict.answer is Answer.TOGETHER
    assert "bears 3.00 times this load" in verdict.why
    assert judge([less, replace(more, bears=2.1)], GIVEN).answer is Answer.CLOSE


def test_neither_names_the_nearest() -> None:
    verdict = judge([result(2, missing(), split=True, bears=0.9), result(2, missing(), split=False, bears=0.7)], GIVEN)
    assert (verdict.answer, verdict.best) == (Answer.NEITHER, None)
    assert "split: 1 P TP 1 + 1 D TP 1, NVLink, bears 0.90 times" in verdict.why


def test_without_objectives_whole_requests_decide() -> None:
    fast, slow = result(2, split=True), result(2, replace(FINE, whole=(1.3, 2.0)), split=False)
    assert judge([fast, slow], NONE).answer is Answer.SPLIT
    near = replace(slow, trial=replace(FINE, whole=(1.05, 2.0)))
    assert judge([fast, near], NONE).answer is Answer.CLOSE


def test_without_objectives_one_that_does_not_carry_the_load_loses() -> None:
    full = result(2, replace(missing(), whole=(0.5, 0.6)), split=True, bears=0.5)
    assert judge([full, result(2, split=False)], NONE).answer is Answer.TOGETHER


def test_the_cheapest_that_keeps_the_objectives_is_first() -> None:
    results = [result(1, missing(), split=False), result(3, split=False), result(2, split=True)]
    assert [one.candidate.cost for one in ranked(results, GIVEN)] == [2, 3, 1]


@pytest.mark.parametrize(
    ("use", "limit"),
    [
        (replace(IDLE, prefill=0.9), FirstLimit.PREFILL),
        (replace(IDLE, transfer=0.95), FirstLimit.TRANSFER),
        (replace(IDLE, api_server=0.95), FirstLimit.API),
        (replace(IDLE, preemptions=0.1), FirstLimit.KV),
    ],
)
def test_what_is_full_limits_the_first_token(use: Use, limit: FirstLimit) -> None:
    broken = replace(missing(), use=use)
    assert limit_of(result(2, split=True, broken=broken)) is limit


def test_a_slow_token_is_decode_or_the_prompts_between_tokens() -> None:
    slow = replace(FINE, tpot=(0.02, 0.022), tpot_missed=0.5, keeps=Keeps.NO)
    assert limit_of(result(2, split=True, broken=slow)) is FirstLimit.DECODE
    assert limit_of(result(2, split=False, broken=replace(slow, gap=0.03))) is FirstLimit.DECODE
    assert limit_of(result(2, split=False, broken=replace(slow, gap=0.2))) is FirstLimit.PROMPTS


def test_nothing_limits_what_bears_every_load_that_was_tried() -> None:
    assert limit_of(result(2, split=True)) is FirstLimit.NONE


def test_a_cheaper_arrangement_within_the_error_band_is_named() -> None:
    verdict = judge(
        [result(3, split=True), result(2, split=False), result(1, missing(Keeps.PERHAPS), split=False)], GIVEN
    )
    assert verdict.answer is Answer.TOGETHER
    assert verdict.why.endswith("1 GPU may be enough: 80.0 % keep both, within the error band.")


def test_a_load_within_its_error_band_is_not_certain() -> None:
    nearly = result(1, split=False, bears=1.05, broken=missing())
    assert nearly.keeps is Keeps.PROBABLY
    assert result(1, split=False, bears=1.05).keeps is Keeps.YES, "it bears all loads that were tried"
    assert result(1, split=False, bears=1.2, broken=missing()).keeps is Keeps.YES
    verdict = judge([nearly, result(2, split=True)], GIVEN)
    assert verdict.answer is Answer.CLOSE
    assert "unsplit keeps the objectives, but by less than the error band" in verdict.why


def test_a_miss_within_the_error_band_of_the_load_is_not_certain() -> None:
    assert result(1, missing(), split=False, bears=0.95).keeps is Keeps.PERHAPS
    assert result(1, missing(), split=False, bears=0.8).keeps is Keeps.NO


def test_a_mode_without_a_rival_says_what_it_keeps_and_how_certainly() -> None:
    verdict = judge([result(2, replace(FINE, keeps=Keeps.PROBABLY), split=True)], GIVEN)
    assert verdict.why == (
        "A split model keeps the objectives with 2 GPUs. Within the error band of the prediction, split may miss them. "
        "No unsplit arrangement is possible on these GPUs."
    )
    assert judge([result(1, split=False)], NONE).why == (
        "An unsplit model carries the load with 1 GPU. No split arrangement is possible on these GPUs."
    )


def test_prompts_that_take_much_of_the_time_limit_tokens_without_long_gaps() -> None:
    slow = replace(FINE, tpot=(0.02, 0.022), gap=0.04, tpot_missed=0.3, keeps=Keeps.NO)
    one = result(1, slow, split=False)
    for scale, limit in (
        (0.2 / one.candidate.estimate.prefill, FirstLimit.DECODE),
        (0.3 / one.candidate.estimate.prefill, FirstLimit.PROMPTS),
    ):
        assert limit_of(replace(one, broken=replace(slow, scale=scale))) is limit


@pytest.mark.parametrize(("tail", "limit"), [(0.0088, FirstLimit.DECODE), (0.0142, FirstLimit.PROMPTS)])
def test_answers_with_uneven_tokens_are_limited_by_prompts(tail: float, limit: FirstLimit) -> None:
    documents = replace(FINE, tpot=(0.0068, tail), gap=0.0125, tpot_missed=0.26, keeps=Keeps.NO)
    assert limit_of(result(1, documents, split=False)) is limit


def test_the_nearest_of_those_that_bear_no_load_has_the_shortest_requests() -> None:
    far, near = (replace(missing(), whole=(seconds, seconds), attainment=0.0) for seconds in (300.0, 20.0))
    order = ranked([result(1, far, split=False, bears=0.0), result(2, near, split=False, bears=0.0)], GIVEN)
    assert [one.candidate.layout.number for one in order] == [2, 1]


def test_gpus_of_several_products_are_named_with_their_price() -> None:
    def on(product: str, number: int, cost: float, *, split: bool) -> SearchResult:
        one = result(number, split=split)
        layout = replace(
            one.candidate.layout, decode=EngineGroup(product, 1, one.candidate.layout.decode.number), named=True
        )
        built = replace(one.candidate.built, layout=layout)
        return replace(one, candidate=replace(one.candidate, built=built, cost=cost))

    cheap, dear = on("NVIDIA-L40S", 3, 2.4, split=False), on("NVIDIA-H200", 2, 7.0, split=True)
    assert judge([cheap, dear], GIVEN).why == (
        "An unsplit model keeps the objectives with 3 x L40S for 2.40 an hour; split needs 2 x H200 for 7.00 an hour."
    )
    unpriced = judge([on("NVIDIA-L40S", 3, 3.0, split=False), on("NVIDIA-H200", 4, 4.0, split=True)], GIVEN)
    assert unpriced.why == "An unsplit model keeps the objectives with 3 x L40S; split needs 4 x H200."


BUSY: Final = replace(IDLE, prefill=0.95)
UNKEPT: Final = replace(FINE, attainment=0.0, ttft_missed=1.0, tpot_missed=1.0, keeps=Keeps.NO)


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (IDLE, "Its GPUs were mostly idle then, so relax an objective."),
        (BUSY, "Give more GPUs, or relax an objective."),
    ],
)
def test_more_gpus_are_advised_where_they_are_busy(use: Use, advice: str) -> None:
    one = result(1, UNKEPT, split=False, bears=0.0, broken=replace(UNKEPT, scale=0.02, use=use))
    assert judge([one], GIVEN).why.endswith(advice)


def test_what_is_idle_limits_nothing() -> None:
    """Both objectives are missed with little work: the time of a step is too long, not the API server full."""
    assert limit_of(result(2, replace(UNKEPT, use=replace(IDLE, api_server=0.45)), split=True)) is FirstLimit.DECODE
    late = replace(UNKEPT, tpot_missed=0.0, use=replace(IDLE, prefill=0.1, api_server=0.45))
    assert limit_of(result(2, late, split=True)) is FirstLimit.PREFILL
