"""Prints predicted beside measured times, and the errors: `uv run --no-sync python -m benchmarks.advise`."""

from statistics import median

from benchmarks.advise.measured import LOADS, Load
from benchmarks.advise.predicted import Times, predicted

_METRICS = ("TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "gap p99", "whole p50")


def main() -> None:
    """A table in Markdown, and the errors of those loads that nothing was fitted to, below saturation."""
    print(f"| load | req/s | | {' | '.join(_METRICS)} |")
    print("| --- | ---: | --- " + "| --- " * len(_METRICS) + "|")
    errors = {kind: {name: list[float]() for name in _METRICS} for kind in ("predicted", "fitted", "saturated")}
    for load in LOADS:
        times = predicted(load)
        kind = "saturated" if load.saturated else "fitted" if load.fitted else "predicted"
        cells = []
        for name, found, real in zip(_METRICS, _flat(times), _measured(load), strict=True):
            if real is None:
                cells.append("")
                continue
            error = found / real - 1
            errors[kind][name].append(abs(error))
            cells.append(f"{found:,.4g} / {real:,.4g} ({error:+.0%})")
        shape = f"{load.prompt:,} / {load.answer:,}{', FP8' if load.fp8 else ''}"
        print(f"| {shape} | {load.rate:g} | {load.way}, {kind} | {' | '.join(cells)} |")
    print(f"\n| median / largest error | {' | '.join(_METRICS)} |\n| --- " + "| --- " * len(_METRICS) + "|")
    for kind, of in errors.items():
        print(f"| {kind} | {' | '.join(f'{median(each):.0%} / {max(each):.0%}' for each in of.values())} |")


def _flat(times: Times) -> tuple[float, ...]:
    return (*times.ttft, *times.tpot, times.gap, times.whole)


def _measured(load: Load) -> tuple[float | None, ...]:
    return (*load.ttft, *load.tpot, load.gap, load.whole)


if __name__ == "__main__":
    main()
