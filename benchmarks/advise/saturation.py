"""Requests that arrangements finish each second under more load than they bear, predicted beside measured.

`uv run --no-sync python -m benchmarks.advise.saturation` prints the table. Each prediction is a run with the arrivals
of the measurement, and nothing was fitted to these.
"""

from dataclasses import dataclass
from typing import Final

from benchmarks.advise.measured import Load
from benchmarks.advise.predicted import arrangement_of, as_measured
from benchmarks.on_gpu.loads import load_of
from pdinference_advise.simulation.run import simulate

_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Overload:
    """A load that is too much.

    Attributes:
        way: As in `Load`.
        load: As on the command line of `benchmarks.on_gpu.loads`.
        finished: Answers that were completed each second of those that count.
    """

    way: str
    load: str
    finished: float


OVERLOADS: Final = (
    Overload("NVLink", "8000/150@8+12+20+0", 4.85),
    Overload("co-located", "8000/150@8+12+20+0", 5.65),
    Overload("NVLink", "1000/250@60+8+16+0", 43.0),
    Overload("co-located", "1000/250@60+8+16+0", 36.38),
)
"""2026-11-26, two H200s, our router, Llama-3.1-8B's shape in bf16, KV cache of 360,448 tokens for each vLLM.

`benchmarks/on_gpu/measured/places.loads` has the whole results."""


def predicted(overload: Overload) -> float:
    """Answers that the simulation completes each second of those that count."""
    given = load_of(overload.load)
    row = Load(
        overload.way, given.prompt, given.answer, given.rate, given.warm_up, given.counted,
        ttft=(None, None), tpot=(0, None), gap=None, whole=0, kv_tokens=360_448,
    )  # fmt: skip
    ends = given.warm_up + given.counted
    requests = simulate(arrangement_of(row), as_measured(given, _SEED), until=ends).requests
    return sum(given.warm_up <= request.done_at < ends for request in requests) / given.counted


def main() -> None:
    """Print the table."""
    print("| load | asked for a second | | finished a second, predicted / measured |\n| --- | ---: | --- | --- |")
    for each in OVERLOADS:
        given, found = load_of(each.load), predicted(each)
        error = found / each.finished - 1
        print(
            f"| {given.prompt:,} / {given.answer:,} | {given.rate:g} | {each.way} | "
            f"{found:.1f} / {each.finished:.1f} ({error:+.0%}) |"
        )


if __name__ == "__main__":
    main()
