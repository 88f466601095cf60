"""What any two answers have to agree on: more load, fewer GPUs and tighter objectives never make it cheaper."""

import math
from dataclasses import replace
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference_advise.advice.advice import Advice
from pdinference_advise.advice.as_json import as_json
from pdinference_advise.advice.layouts import EngineGroup
from pdinference_advise.advice.objectives import RequestObjectives
from pdinference_advise.advice.search import SearchResult
from pdinference_advise.advice.trial import Keeps
from pdinference_advise.advice.verdict import Answer, judge
from tests.advise.advice.questions import answer, question
from tests.advise.advice.test_verdict import FINE, GIVEN, NONE, result

FEW: Final = settings(max_examples=6, deadline=None)
"""An answer takes half a second."""
LENGTHS: Final = st.tuples(st.sampled_from(["300", "1000", "4000..8000"]), st.sampled_from(["30", "150", "50..400"]))
RATES: Final = st.floats(1, 30)
OBJECTIVES: Final = st.tuples(st.integers(150, 2000), st.integers(6, 40))


def ask(gpus: str, rate: float, lengths: tuple[str, str], objectives: tuple[int, int]) -> Advice:
    (prompt, tokens), (ttft, tpot) = lengths, objectives
    return answer(question((gpus,), rate=rate, prompt=prompt, answer=tokens, ttft=f"{ttft}ms", tpot=f"{tpot}ms"))


def needed(advice: Advice) -> float:
    """GPUs of the cheapest arrangement that keeps the objectives; infinite without one."""
    best = advice.verdict.best
    return best.candidate.cost if best is not None else math.inf


@FEW
@given(RATES, LENGTHS, OBJECTIVES)
def test_more_load_never_needs_fewer_gpus(rate: float, lengths: tuple[str, str], objectives: tuple[int, int]) -> None:
    less, more = (needed(ask("4xH200", times * rate, lengths, objectives)) for times in (1, 2))
    assert less <= more


@FEW
@given(RATES, LENGTHS, OBJECTIVES)
def test_laxer_objectives_never_need_more_gpus(
    rate: float, lengths: tuple[str, str], objectives: tuple[int, int]
) -> None:
    ttft, tpot = objectives
    tight, lax = (needed(ask("3xH200", rate, lengths, each)) for each in (objectives, (2 * ttft, 2 * tpot)))
    assert lax <= tight


@FEW
@given(RATES, LENGTHS, OBJECTIVES)
def test_more_gpus_never_break_what_held(rate: float, lengths: tuple[str, str], objectives: tuple[int, int]) -> None:
    few, many = (needed(ask(gpus, rate, lengths, objectives)) for gpus in ("2xH200", "4xH200"))
    assert many <= few


@FEW
@given(RATES, LENGTHS, OBJECTIVES)
def test_the_resource_is_the_best_row(rate: float, lengths: tuple[str, str], objectives: tuple[int, int]) -> None:
    advice = ask("4xH200", rate, lengths, objectives)
    found, layout = as_json(advice), advice.shown.candidate.layout
    spec = found["resource"]["spec"]
    assert found["verdict"] == advice.verdict.answer
    assert [row["name"] for row in found["arrangements"] if row["best"]] == (
        [layout.title] if advice.verdict.best else []
    )

    def engines(role: str) -> EngineGroup:
        part = spec[role]
        number = layout.pods * spec["transfer"]["hostLocal"][role] if layout.host_local else part["replicas"]
        (product,) = part["accelerator"]["products"]
        return EngineGroup(product, part["parallelism"]["tensor"], number)

    assert engines("decode") == layout.decode
    assert (engines("parameter") if spec["mode"] == "Disaggregated" else None) == layout.parameter


def made_up(engines: int, keeps: Keeps, bears: float, *, split: bool) -> SearchResult:
    kept = keeps >= Keeps.PROBABLY
    return result(engines, replace(FINE, keeps=keeps), split=split, bears=bears if kept else 1 / bears)


RESULTS: Final = st.builds(made_up, st.integers(2, 4), st.sampled_from(Keeps), st.floats(1, 3), split=st.booleans())


@settings(deadline=None)
@given(st.lists(RESULTS, max_size=6), st.sampled_from([GIVEN, NONE]))
def test_any_results_have_a_verdict_that_fits_them(results: list[SearchResult], objectives: RequestObjectives) -> None:
    verdict = judge(results, objectives)
    kept = [one for one in results if one.trial.kept]
    assert (verdict.answer is Answer.NEITHER) is (verdict.best is None) is (not kept)
    if verdict.best is None:
        return
    side = Answer.SPLIT if verdict.best.candidate.layout.split else Answer.TOGETHER
    assert verdict.answer in {side, Answer.CLOSE}
    if objectives.given:
        assert verdict.best.candidate.cost == min(one.candidate.cost for one in kept)
