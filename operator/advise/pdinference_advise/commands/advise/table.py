"""Prints an advice: the verdict, the arrangements, and the resource to paste.

Tests: tests/advise/commands/advise/test_advise.py, tests/cli/test_narrow.py
"""

import math
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pdinference.cli.narrow import fitted
from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.advice import Advice
from pdinference_advise.advice.as_json import million
from pdinference_advise.advice.search import SearchResult
from pdinference_advise.advice.trial import Keeps
from pdinference_advise.advice.verdict import LONG_S, FirstLimit, limit_of


def print_advice(advice: Advice, resource: str, console: Console) -> None:
    """Print an advice with its resource as YAML."""
    console.print(Text(f"{advice.verdict.answer}.", style="bold"), Text(advice.verdict.why))
    console.print()
    for line in _asked(advice):
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    console.print()
    console.print(fitted(_table(advice), console))
    for line in (*_sources(advice), *_hints(advice), *advice.notes, *advice.of_range):
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    console.print()
    which = "The resource" if advice.verdict.best else "The resource of the nearest"
    console.print(Text(f"{which}: {advice.shown.candidate.layout.title}", style="bold"))
    console.out(resource, highlight=False, end="")
    console.out("# pdinference advise ... -o yaml | kubectl apply -f -", highlight=False)


def _asked(advice: Advice) -> Iterator[str]:
    question = advice.question
    yield f"Load: {question.load.source}. " + ". ".join(question.summary.lines()) + "."
    yield from advice.of_load
    if question.objectives.given:
        yield f"Objectives: {question.objectives}. TPOT is the mean time per output token of an answer."
    else:
        yield "No objectives (--ttft, --tpot) are given, so all GPUs are used, and median times of requests compared."
    yield f"GPUs: {question.offer}."


def _table(advice: Advice) -> Table:
    given, priced = advice.question.objectives.given, advice.question.offer.priced
    table = Table(
        title="arrangements at this load; times in ms, or in seconds where a cell says s", title_justify="left"
    )
    table.add_column("arrangement", overflow="fold", min_width=24)
    tail = advice.question.objectives.tail
    columns = ["GPUs", f"TTFT\np50 / {tail}", f"TPOT\np50 / {tail}", "gap\np99"]
    columns += ["keep\nboth"] if given else ["request\np50"]
    columns += ["bears", "cost of 1M\ntokens" if priced else "GPU-h of\n1M tokens"]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("limit", overflow="fold")
    for one in advice.results:
        table.add_row(*_row(one, given=given), style="bold" if one is advice.verdict.best else "")
    return table


def _row(one: SearchResult, *, given: bool) -> tuple[str, ...]:
    trial, cost = one.trial, million(one)
    open_end = one.broken is None and trial.kept
    limit = limit_of(one)
    return (
        one.candidate.layout.title,
        str(one.candidate.layout.number),
        f"{_ms(trial.ttft[0])} / {_ms(trial.ttft[1])}",
        f"{_ms(trial.tpot[0])} / {_ms(trial.tpot[1])}",
        _ms(trial.gap),
        f"{_percent(trial.attainment)}{_mark(one.keeps)}" if given else _ms(trial.whole[0]),
        f"{'> ' if open_end else ''}{one.bears:.2f} x" if one.bears else "none",
        "-" if cost is None else f"{cost:.2f}",
        "-" if limit is FirstLimit.NONE else limit.value,
    )


def _percent(share: float) -> str:
    """A share that is not quite all is not shown as all."""
    return f"{math.floor(1000 * share) / 10:.1f}%"


def _mark(keeps: Keeps) -> str:
    return {Keeps.YES: "  ", Keeps.PROBABLY: " ?", Keeps.PERHAPS: " ?", Keeps.NO: " !"}[keeps]


def _sources(advice: Advice) -> Iterator[str]:
    """Where the numbers come from, and what the columns mean."""
    if advice.question.objectives.given:
        yield (
            "keep both: share of requests that keep TTFT and TPOT. !: the objectives are not kept. ?: within the error "
            "band of the times or of the load. bears: times this load until they break (none: they broke at all loads "
            "tried), and limit: by what."
        )
    else:
        yield "bears: times this load until requests wait longer and longer, and limit: what is full then."
    yield _engines(advice)
    percentile, tail = advice.question.objectives.percentile, advice.question.objectives.tail
    sources: dict[TimeSource, list[SearchResult]] = {}
    for one in advice.results:
        sources.setdefault(one.candidate.built.source, []).append(one)
    for source, results in sources.items():
        errors = results[0].candidate.built.errors
        what = "All numbers" if len(sources) == 1 else "; ".join(one.candidate.layout.title for one in results)
        yield (
            f"{what}: predicted, {_SOURCES[source]}. Usual error: TTFT {errors.ttft_p50:.0%} "
            f"({tail} {errors.ttft(percentile):.0%}), TPOT {errors.tpot_p50:.0%} "
            f"({tail} {errors.tpot(percentile):.0%}), load {errors.rate:.0%} (assumed)."
        )


def _engines(advice: Advice) -> str:
    """Tokens a step and the KV cache of all rows that do not say otherwise."""
    tokens: dict[str, set[int]] = {"P": set(), "D": set(), "unsplit": set()}
    bits: set[int] = set()
    for one in advice.results:
        built = one.candidate.built
        if built.layout.hint:
            continue
        arrangement = built.arrangement
        if arrangement.split is not None:
            tokens["P"].add(arrangement.split.kind.limits.step_tokens)
        tokens["D" if arrangement.split else "unsplit"].add(arrangement.kind.limits.step_tokens)
        bits.add(built.kv_bits)
    steps = ", ".join(f"{name} {_any_of(numbers)}" for name, numbers in tokens.items() if numbers)
    return f"Tokens a step: {steps}. KV cache: {_any_of(bits)} bits."


def _any_of(numbers: Iterable[int]) -> str:
    return " or ".join(f"{number:,}" for number in sorted(numbers))


def _hints(advice: Advice) -> Iterator[str]:
    """Why a row is not the verdict."""
    layouts = [one.candidate.layout for one in advice.results]
    if any(layout.fp8 for layout in layouts):
        yield (
            "Rows with FP8 KV cache are hints, and never the verdict: FP8 changes the model's answers a little. By how "
            "much was not measured."
        )
    if any(layout.adaptive for layout in layouts):
        yield (
            "Rows with Adaptive (router.disaggregation) are hints, and never the verdict: gaps between tokens are "
            "longer than with P and D for all, which no objective is about, and P answers some requests with its own "
            "options."
        )
    if any(layout.step_tokens for layout in layouts):
        yield (
            "Rows with other tokens a step (maxNumBatchedTokens) are hints, and never the verdict: they trade TTFT for "
            "gaps, which no objective is about."
        )


_SOURCES = {
    TimeSource.MEASURED: "as measured on this product",
    TimeSource.INTERPOLATED: "interpolated between measurements on this product",
    TimeSource.EXTRAPOLATED: (
        "extrapolated from measurements of another product, model, number format, TP, link or number of API servers"
    ),
    TimeSource.UNKNOWN: "of unknown source",
}


def _ms(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    if seconds >= LONG_S:
        return f"{seconds:,.0f} s"
    milliseconds = 1000 * seconds
    return f"{milliseconds:,.0f}" if milliseconds >= 20 else f"{milliseconds:.1f}"
