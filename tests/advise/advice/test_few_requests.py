"""Loads with few requests, or with all of them at once."""

from dataclasses import replace

import pytest

from pdinference_advise.advice.advice import Advice
from pdinference_advise.advice.verdict import Answer
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.simulation.arrivals import Arrival
from tests.advise.advice.questions import answer, question


def advice_on(*times: float, tokens: int = 100, ttft: str | None = "1s") -> Advice:
    load = Trace.observed(tuple(Arrival(at, 1000, tokens) for at in times), "a trace")
    return answer(replace(question(("1xH200",), ttft=ttft, tpot="30ms" if ttft else None), load=load, peak=load))


@pytest.mark.parametrize("times", [(0.0,), (0.0, 0.0), (0.0, 30.0)])
def test_objectives_that_few_requests_keep_are_kept(times: tuple[float, ...]) -> None:
    advice = advice_on(*times)
    assert advice.verdict.answer is Answer.TOGETHER
    assert advice.shown.trial.attainment == 1


def test_an_answer_may_take_longer_than_the_load() -> None:
    assert advice_on(0.0, tokens=2000).shown.trial.whole[0] > 5


def test_requests_that_come_at_once_are_carried_and_wait_for_each_other() -> None:
    trial = advice_on(*[0.0] * 200, ttft=None).shown.trial
    assert trial.kept
    assert trial.ttft[1] > 1.5 * trial.ttft[0] > 0


@pytest.mark.parametrize(("requests", "few"), [(99, True), (100, False)])
def test_a_percentile_of_fewer_requests_is_explained(requests: int, few: bool) -> None:
    said = " ".join(advice_on(*map(float, range(requests))).of_load)
    assert ("A percentile of 99 needs at least 100 requests, and the load has 99" in said) is few
