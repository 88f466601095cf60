"""Whether to split: the verdict of results, and why."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pdinference.memory.product_names import short_name
from pdinference_advise.advice.errors import Errors
from pdinference_advise.advice.objectives import RequestObjectives
from pdinference_advise.advice.search import SearchResult
from pdinference_advise.advice.trial import Keeps, Trial

LONG_S: Final = 20.0
"""Times above this are in seconds, because the arrangement does not carry the load."""

_STALLED: Final = 3.0
"""Gaps this many times as long as usual come from prompts that are computed between two tokens."""

_BUSY: Final = 0.5
"""Share of time from which a part is busy."""
_LONGER: Final = 0.25
"""Share of an engine's time that prompts take from which they make a token a third longer, and more in the tail."""

_UNEVEN: Final = 1.3
"""Answers whose tokens take this many times as long as the median's had prompts between them."""


class Answer(StrEnum):
    """The verdict."""

    SPLIT = "Split"
    TOGETHER = "Do not split"
    CLOSE = "Too close to call"
    NEITHER = "Neither"


class FirstLimit(StrEnum):
    """What breaks first."""

    PREFILL = "prefill"
    PROMPTS = "prompts between tokens"
    DECODE = "decode bandwidth"
    KV = "KV memory"
    TRANSFER = "transfer"
    API = "API server"
    NONE = "none found"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict, and the arrangement that it stands on.

    Attributes:
        answer: Whether to split.
        why: One sentence or two.
        best: The arrangement to use; None if no arrangement carries the load.
    """

    answer: Answer
    why: str
    best: SearchResult | None


def limit_of(result: SearchResult) -> FirstLimit:
    """What breaks first when the load grows."""
    trial, split = result.broken or result.trial, result.candidate.layout.split
    use = trial.use
    if result.broken is None and result.trial.kept:
        return FirstLimit.NONE
    shares = {
        FirstLimit.PREFILL: use.prefill,
        FirstLimit.TRANSFER: use.transfer,
        FirstLimit.API: use.api_server if use.api_server >= _BUSY else 0.0,
        FirstLimit.KV: 1.0 if use.preemptions or use.kv_cache >= 0.98 else 0.0,
    }
    tokens = trial.tpot_missed > trial.ttft_missed or (trial.tpot_missed == trial.ttft_missed > 0 and _is_idle(trial))
    if tokens and max(use.api_server, shares[FirstLimit.KV]) < 0.9:
        prompts = not split and _prompts_delay_tokens(result, trial)
        return FirstLimit.PROMPTS if prompts else FirstLimit.DECODE
    return max(shares, key=lambda limit: shares[limit])


def _prompts_delay_tokens(result: SearchResult, trial: Trial) -> bool:
    """Whether prompts make tokens slow in an engine that does both: decode steps alone are short and alike."""
    uneven = trial.tpot[1] > _UNEVEN * trial.tpot[0]
    return stalls(trial) or uneven or result.candidate.estimate.prefill * trial.scale >= _LONGER


def _is_idle(trial: Trial) -> bool:
    """Whether nothing was busy."""
    use = trial.use
    return max(use.prefill, use.transfer, use.api_server, use.kv_cache) < _BUSY


def stalls(trial: Trial) -> bool:
    """Whether prompts delay tokens by several times what a token takes."""
    return trial.gap > _STALLED * trial.tpot[0]


def ranked(results: Sequence[SearchResult], objectives: RequestObjectives) -> list[SearchResult]:
    """The cheapest that keeps the objectives first; of one price, the one that bears more."""

    def order(one: SearchResult) -> tuple[float, ...]:
        if not one.trial.kept:
            return 1.0, -one.bears, -one.trial.attainment, one.trial.wait, one.candidate.cost
        if objectives.given:
            return 0.0, one.candidate.cost, -one.bears
        return 0.0, one.trial.whole[0], one.candidate.cost

    return sorted(results, key=order)


def judge(results: Sequence[SearchResult], objectives: RequestObjectives) -> Verdict:
    """Compare the best split arrangement with the best that is not."""
    order = ranked(results, objectives)
    if not order or not order[0].trial.kept:
        return _neither(order, objectives)
    best = order[0]
    rival = next((one for one in order if one.candidate.layout.split is not best.candidate.layout.split), None)
    if rival is None:
        return Verdict(_side(best), _alone(best, order, objectives), best)
    return _by_cost(best, rival, order, objectives) if objectives.given else _by_times(best, rival, objectives)


def _neither(order: Sequence[SearchResult], objectives: RequestObjectives) -> Verdict:
    if not order:
        return Verdict(Answer.NEITHER, "No arrangement is possible on these GPUs.", None)
    best = order[0]
    what = "keeps the objectives" if objectives.given else "carries the load"
    near = ""
    if any(one.keeps is Keeps.PERHAPS for one in order):
        near = " Some come within the error band of the prediction."
    bears = f"bears {best.bears:.2f} times this load" if best.bears else "does so at no lower load that was tried"
    advice = "Give more GPUs, or relax an objective."
    if not best.bears and best.broken is not None and _is_idle(best.broken):
        advice = "Its GPUs were mostly idle then, so relax an objective."
    return Verdict(
        Answer.NEITHER,
        f"No arrangement {what} on these GPUs. The nearest, {best.candidate.layout.title}, {bears}.{near} {advice}",
        None,
    )


def _by_cost(
    best: SearchResult, rival: SearchResult, order: Sequence[SearchResult], objectives: RequestObjectives
) -> Verdict:
    """With objectives the price decides, then the load that is borne.

    The errors of two predictions of one model have mostly one direction. So the verdict holds if it is the same when
    all times are longer by the error band, and when all are shorter.
    """
    winners = {least: _winner(order, least) for least in (Keeps.PROBABLY, Keeps.YES, Keeps.PERHAPS)}
    side = _side(best)
    if any(winner not in {side, None} for winner in winners.values()):
        return _close(best, rival, _doubt(best, rival, winners, order))
    return Verdict(side, _reason(best, rival, objectives) + _band(best, order) + _cheaper(best, order), best)


def _alone(best: SearchResult, order: Sequence[SearchResult], objectives: RequestObjectives) -> str:
    """The best arrangement, where the other mode has none."""
    keeps = "keeps the objectives" if objectives.given else "carries the load"
    other = "unsplit" if best.candidate.layout.split else "split"
    band = _band(best, order) if objectives.given else ""
    return f"{_model(best)} {keeps} with {_gpus(best)}.{band} No {other} arrangement is possible on these GPUs."


def _band(best: SearchResult, order: Sequence[SearchResult]) -> str:
    """What to say of a best arrangement that may miss the objectives, by the error band."""
    if best.keeps is Keeps.YES:
        return ""
    sure = next((one for one in order if one.keeps is Keeps.YES), None)
    other = "" if sure is None else f"; {sure.candidate.layout.title} keeps them"
    return f" Within the error band of the prediction, {_name(best)} may miss them{other}."


def _cheaper(best: SearchResult, order: Sequence[SearchResult]) -> str:
    """The cheapest arrangement that may do, if it costs less than the best."""
    near = [one for one in order if one.keeps is Keeps.PERHAPS and one.candidate.cost < best.candidate.cost]
    if not near:
        return ""
    one = min(near, key=lambda one: (one.candidate.cost, -one.trial.attainment))
    share = math.floor(1000 * one.trial.attainment) / 10
    return f" {_gpus(one)} may be enough: {share:.1f} % keep both, within the error band."


def _winner(order: Sequence[SearchResult], least: Keeps) -> Answer | None:
    """The better mode of those that keep the objectives so certainly; None if neither does."""
    keeping = sorted((one for one in order if one.keeps >= least), key=lambda one: (one.candidate.cost, -one.bears))
    if not keeping:
        return None
    first = keeping[0]
    second = next((one for one in keeping if one.candidate.layout.split is not first.candidate.layout.split), None)
    if second is None or second.candidate.cost > first.candidate.cost or first.bears > _much_more(first, second):
        return _side(first)
    return Answer.CLOSE


def _much_more(first: SearchResult, second: SearchResult) -> float:
    """The load that the second bears, with the error band on top."""
    return second.bears * (1 + max(_errors(first).rate, _errors(second).rate))


def _doubt(
    best: SearchResult, rival: SearchResult, winners: Mapping[Keeps, Answer | None], order: Sequence[SearchResult]
) -> str:
    if winners[Keeps.PROBABLY] is Answer.CLOSE:
        band = max(_errors(best).rate, _errors(rival).rate)
        return f"both keep the objectives at one price, and bear loads within {band:.0%} of each other"
    if winners[Keeps.YES] not in {_side(best), None}:
        return f"{_name(best)} keeps the objectives, but by less than the error band of the prediction"
    near = min(
        (one for one in order if one.keeps is Keeps.PERHAPS and _side(one) is not _side(best)),
        key=lambda one: one.candidate.cost,
    )
    price = "cheaper" if near.candidate.cost < best.candidate.cost else "as cheap"
    return f"{near.candidate.layout.title} is {price}, and misses the objectives by less than the error band"


def _reason(best: SearchResult, rival: SearchResult, objectives: RequestObjectives) -> str:
    if not rival.trial.kept:
        missed = f"{_name(rival, start=True)} does not: {_miss(rival, objectives)}."
        return f"{_model(best)} keeps the objectives with {_gpus(best)}. {missed}"
    if rival.candidate.cost > best.candidate.cost:
        return f"{_model(best)} keeps the objectives with {_gpus(best)}; {_name(rival)} needs {_gpus(rival)}."
    return (
        f"Both keep the objectives with {_gpus(best)}. {_name(best, start=True)} bears {best.bears:.2f} times this "
        f"load before they break, {_name(rival)} {rival.bears:.2f} times."
    )


def quicker(together: float, split: float, band: float) -> Answer:
    """The mode with the shorter times.

    Args:
        together: Median time of a whole request without the split.
        split: The same with the split, in the same unit.
        band: Share by which they have to differ.
    """
    if max(together, split) / min(together, split) - 1 <= band:
        return Answer.CLOSE
    return Answer.SPLIT if split < together else Answer.TOGETHER


def _by_times(best: SearchResult, rival: SearchResult, objectives: RequestObjectives) -> Verdict:
    """Without objectives the median time of a whole request decides."""
    if not rival.trial.kept:
        return Verdict(
            _side(best), f"{_name(rival, start=True)} does not carry this load: {_miss(rival, objectives)}.", best
        )
    band = max(_errors(best).whole_p50, _errors(rival).whole_p50)
    whole = {_side(one): one.trial.whole[0] for one in (best, rival)}
    answer = quicker(whole[Answer.TOGETHER], whole[Answer.SPLIT], band)
    mine, theirs = map(_time, (whole[_side(best)], whole[_side(rival)]))
    trade = _trade(best, rival, objectives)
    if answer is Answer.CLOSE:
        return Verdict(answer, f"Whole requests take {mine} and {theirs}, within {band:.0%}. {trade}", best)
    why = f"Half of all requests take {mine} or less, with {_name(rival)} {theirs}. {trade}"
    return Verdict(answer, why, best)


def _trade(best: SearchResult, rival: SearchResult, objectives: RequestObjectives) -> str:
    """What each is better at."""
    values: tuple[tuple[str, Callable[[Trial], float]], ...] = (
        (f"TTFT {objectives.tail}", lambda trial: trial.ttft[1]),
        (f"TPOT {objectives.tail}", lambda trial: trial.tpot[1]),
        ("gap p99", lambda trial: trial.gap),
    )
    parts = [
        f"{name} {_time(value(best.trial))} instead of {_time(value(rival.trial))}"
        for name, value in values
        if not math.isnan(value(best.trial) + value(rival.trial))
    ]
    return f"{_name(best, start=True)} has {', '.join(parts)} of {_name(rival)}."


def _close(best: SearchResult, rival: SearchResult, why: str) -> Verdict:
    return Verdict(
        Answer.CLOSE,
        f"{best.candidate.layout.title} and {rival.candidate.layout.title}: {why}. Measure both (docs/p-d-or-not.md).",
        best,
    )


def _miss(one: SearchResult, objectives: RequestObjectives) -> str:
    trial = one.trial
    if trial.ttft_missed >= trial.tpot_missed:
        return f"TTFT {objectives.tail} {_time(trial.ttft[1])}, limited by {limit_of(one)}"
    return f"TPOT {objectives.tail} {_time(trial.tpot[1])}, limited by {limit_of(one)}"


def _errors(one: SearchResult) -> Errors:
    return one.candidate.built.errors


def _side(one: SearchResult) -> Answer:
    return Answer.SPLIT if one.candidate.layout.split else Answer.TOGETHER


def _name(one: SearchResult, *, start: bool = False) -> str:
    name = "split" if one.candidate.layout.split else "unsplit"
    return name.capitalize() if start else name


def _model(one: SearchResult) -> str:
    """The model as the subject of a sentence."""
    return "A split model" if one.candidate.layout.split else "An unsplit model"


def _gpus(one: SearchResult) -> str:
    """Its GPUs; with several products also which, and their price, by which arrangements are compared."""
    layout, cost = one.candidate.layout, one.candidate.cost
    if not layout.named:
        return f"{layout.number} GPU{'s' if layout.number > 1 else ''}"
    price = f" for {cost:.2f} an hour" if cost != layout.number else ""
    return " + ".join(f"{number} x {short_name(product)}" for product, number in layout.gpus.items()) + price


def _time(seconds: float) -> str:
    if seconds >= LONG_S:
        return f"{seconds:,.0f} s"
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"
