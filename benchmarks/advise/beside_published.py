"""Prints predictions beside what others published: `uv run --no-sync python -m benchmarks.advise.beside_published`."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from benchmarks.advise.errors import METRICS, error_lines
from benchmarks.advise.predicted import Times
from benchmarks.advise.published import LOADS, Load
from benchmarks.advise.published_predicted import built_of, layout_of, predicted
from pdinference_advise.advice.verdict import quicker

_SHORT: Final = {
    "NVIDIA-H100-80GB-HBM3": "H100",
    "NVIDIA-H800": "H800",
    "NVIDIA-A100-SXM4-80GB": "A100",
    "NVIDIA-GeForce-RTX-4090": "RTX 4090",
}


def main() -> None:
    """Three tables in Markdown."""
    print("\n".join(lines()))


def lines() -> Iterator[str]:
    """The lines of the tables: times, errors, verdicts."""
    found = predictions()
    errors = {kind: columns.values() for kind, columns in errors_by_kind().items()}
    for table in (_times(found), error_lines(errors), _verdicts(found)):
        yield from table
        yield ""


@cache
def predictions() -> Mapping[Load, Times]:
    """The prediction of each load."""
    return {load: predicted(load) for load in LOADS}


def errors_by_kind() -> Mapping[str, Mapping[str, list[float]]]:
    """Relative errors by source, product and split, and by what was measured."""
    of: dict[str, dict[str, list[float]]] = defaultdict(lambda: {name: [] for name in METRICS})
    for load, times in predictions().items():
        for name, mine, real in zip(METRICS, times.flat, load.measured, strict=True):
            if real is not None:
                of[_kind(load)][name].append(abs(mine / real - 1))
    return of


def _times(found: Mapping[Load, Times]) -> Iterator[str]:
    yield f"| source | model, GPUs | engines | load | {' | '.join(METRICS)} |"
    yield "| --- | --- | --- | --- " + "| --- " * len(METRICS) + "|"
    for load, times in found.items():
        cells = (
            f"{mine:,.4g} / {real:,.4g} ({mine / real - 1:+.0%})" if real is not None else ""
            for mine, real in zip(times.flat, load.measured, strict=True)
        )
        what = f"{load.model.partition('/')[2]}, {_SHORT[load.product]}"
        yield f"| {load.source.name} | {what} | {layout_of(load).title} | {_load(load)} | {' | '.join(cells)} |"


def _verdicts(found: Mapping[Load, Times]) -> Iterator[str]:
    yield "| source | split | load | predicted: unsplit / split | published | verdict | faster was |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for together, split in _pairs():
        mine = _whole(found[together].flat, together.answer), _whole(found[split].flat, split.answer)
        real = _whole(together.measured, together.answer), _whole(split.measured, split.answer)
        medians = (f"{before:,.0f} / {after:,.0f}" for before, after in (mine, real))
        verdict = quicker(*mine, built_of(split).errors.whole_p50)
        faster = "split" if real[1] < real[0] else "unsplit"
        title = f"{split.source.name} | {layout_of(split).title} | {_load(split)}"
        yield f"| {title} | {' | '.join(medians)} | {verdict} | {faster} |"


def _pairs() -> Iterator[tuple[Load, Load]]:
    """Loads that were published both ways, with the same tensor parallelism of D."""
    for split in LOADS:
        for together in LOADS:
            if together.parameter is None is not split.parameter and _same(together) == _same(split):
                yield together, split


def _same(load: Load) -> tuple[object, ...]:
    return load.source, load.decode.tensor, load.prompt, load.rate


def _whole(times: tuple[float | None, ...], answer: int) -> float:
    """Milliseconds of a request, from the medians of its first token and of the others."""
    first, token = times[0], times[2]
    assert first is not None  # noqa: S101 - for the type checker
    assert token is not None  # noqa: S101
    return first + (answer - 1) * token


def _kind(load: Load) -> str:
    return f"{load.source.name}, {_SHORT[load.product]}, {'unsplit' if load.parameter is None else 'P and D'}"


def _load(load: Load) -> str:
    rate = "at once" if load.rate == math.inf else f"{load.rate:g} a second" if load.rate else "one by one"
    return f"{load.prompt:,} / {load.answer}, {rate}"


if __name__ == "__main__":
    main()
