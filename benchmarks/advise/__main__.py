"""Prints predicted beside measured times, the errors and verdicts: `uv run --no-sync python -m benchmarks.advise`."""

from collections import Counter
from collections.abc import Iterable

from benchmarks.advise.errors import METRICS, error_lines
from benchmarks.advise.measured import LOADS, Load
from benchmarks.advise.predicted import Times, predicted
from benchmarks.advise.verdicts import Pair, pairs

_ADAPTIVE = "Adaptive"


def main() -> None:
    """Three tables in Markdown: times, errors, verdicts."""
    found = {load: predicted(load) for load in LOADS}
    _print_times(found)
    _print_verdicts(pairs(found))


def _print_times(predictions: dict[Load, Times]) -> None:
    print(f"| load | req/s | | {' | '.join(METRICS)} |")
    print("| --- | ---: | --- " + "| --- " * len(METRICS) + "|")
    errors = {
        kind: {name: list[float]() for name in METRICS} for kind in ("predicted", "fitted", "saturated", _ADAPTIVE)
    }
    for load, times in predictions.items():
        kind = _kind(load)
        cells = []
        for name, found, real in zip(METRICS, times.flat, load.flat, strict=True):
            if real is None:
                cells.append("")
                continue
            error = found / real - 1
            errors[kind][name].append(abs(error))
            cells.append(f"{found:,.4g} / {real:,.4g} ({error:+.0%})")
        way = load.way if kind == load.way else f"{load.way}, {kind}"
        print(f"| {_shape(load)} | {load.rate:g} | {way} | {' | '.join(cells)} |")
    print("", *error_lines({kind: of.values() for kind, of in errors.items()}), sep="\n")


def _kind(load: Load) -> str:
    """Which errors a load counts to."""
    if load.way == _ADAPTIVE:
        return _ADAPTIVE
    return "saturated" if load.saturated else "fitted" if load.fitted else "predicted"


def _print_verdicts(every: Iterable[Pair]) -> None:
    print(
        "\n| load | req/s | split over | | predicted: co-located / split | measured: co-located / split | verdict | |"
    )
    print("| --- | ---: | --- | --- | --- | --- | --- | --- |")
    for pair in every:
        medians = (" / ".join(f"{value:,.0f}" for value in both) for both in (pair.predicted, pair.measured))
        print(
            f"| {_shape(pair.split)} | {pair.split.rate:g} | {pair.split.way} | {pair.kind} | "
            f"{' | '.join(medians)} | {pair.verdict} | {pair.judged} |"
        )


def _shape(load: Load) -> str:
    notes = {
        "FP8": load.fp8,
        "FP8 weights": load.weights8,
        "TP 2": load.tensor > 1,
        "H100": "H100" in load.product,
        f"{load.step_tokens:,} tokens a step{' on P' if load.splits_all else ''}": load.step_tokens != 8192,
        "one GPU": load.gpus == 1,
        f"vLLM {load.vllm}": load.vllm != "0.26.0",
        "prompts not compiled": not load.compiled,
    }
    lengths = Counter(((load.prompt, load.answer), *load.others))
    shares = [f"{count} x " if len(lengths) > 1 else "" for count in lengths.values()]
    mix = [f"{share}{prompt:,} / {answer:,}" for share, (prompt, answer) in zip(shares, lengths, strict=True)]
    return ", ".join((" and ".join(mix), *(note for note, holds in notes.items() if holds)))


if __name__ == "__main__":
    main()
