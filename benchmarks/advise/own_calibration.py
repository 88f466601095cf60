"""Llama-3.1-8B unsplit on the H200, by the built-in calibration and by one of steps alone.

The one of steps is what `pdinference calibrate fit` makes of `benchmarks/on_gpu/measured/llama-8b.raw`. The loads are
those of `benchmarks.advise` that the built-in calibration was not fitted to. `python -m
benchmarks.advise.own_calibration` prints the median and the largest errors, which benchmarks/results/calibrate.md has.
"""

from collections.abc import Iterable
from dataclasses import replace

from benchmarks.advise.errors import error_lines
from benchmarks.advise.measured import LOADS, Load
from benchmarks.advise.predicted import arrangement_of, predicted_by
from benchmarks.advise.shapes import own
from pdinference_advise.simulation.arrangement import Arrangement


def main() -> None:
    """A table in Markdown."""
    loads = [load for load in LOADS if _counts(load)]
    errors = {"built in": _columns(loads, calibrated=False), "own": _columns(loads, calibrated=True)}
    print(*error_lines(errors, f"{len(loads)} loads: "), sep="\n")


def _counts(load: Load) -> bool:
    """One rank with the KV cache in 16 bits was calibrated."""
    kind = load.way == "co-located" and load.product == "NVIDIA-H200" and load.tensor == 1 and not load.fp8
    return kind and not load.fitted and not load.saturated


def _columns(loads: Iterable[Load], *, calibrated: bool) -> list[list[float]]:
    columns = zip(*(_errors(load, calibrated=calibrated) for load in loads), strict=True)
    return [[error for error in column if error is not None] for column in columns]


def _errors(load: Load, *, calibrated: bool) -> list[float | None]:
    arrangement = arrangement_of(load)
    found = predicted_by(_calibrated(arrangement) if calibrated else arrangement, load).flat
    return [None if real is None else abs(mine / real - 1) for mine, real in zip(found, load.flat, strict=True)]


def _calibrated(arrangement: Arrangement) -> Arrangement:
    steps, service = own("llama-8b")
    limits = arrangement.kind.limits
    limits = replace(limits, servers=replace(limits.servers, service=service))
    return replace(arrangement, kind=replace(arrangement.kind, steps=steps, limits=limits), service=service)


if __name__ == "__main__":
    main()
