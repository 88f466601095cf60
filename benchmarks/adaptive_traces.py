"""Goodput of `router.disaggregation` on other people's loads, simulated.

    python -m benchmarks.adaptive_traces FILE...

The files are traces of Azure (CSV) and Mooncake (JSON lines). H100s with Llama-3.1-8B over NVLink serve their first
requests at other and other rates, bursts kept. Goodput is the highest rate at which 95 % of the requests have their
first token within 4 times the time of a lone request with that prompt, and their tokens within 3 times its gap. Always
and Adaptive have the best of some numbers of P pods.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise
from typing import BinaryIO, Final

import click

from benchmarks.adaptive import ARRANGEMENTS, adaptive, aggregated, always
from pdinference.api.v1alpha1.defaults import BATCHED_TOKENS_OF_BOTH
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.advice.workload.traces import read
from pdinference_advise.simulation.arrangement import Arrangement
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.run import simulate

_KEPT: Final = 0.95
_FIRST: Final = 4.0
_GAP: Final = 3.0
_POLICIES: Final = ("cache_aware", "least_loaded")
"""Of unsplit engines with short steps: the better one counts."""
_LEARNING: Final = 0.2
"""Share of the requests that come before those that count."""
_RATES: Final = (0.02, 40.0)
"""Requests a second for each GPU between which goodput is looked for."""
_STEPS: Final = 10
"""Halvings of the logarithm of that range: the error is 1 %."""


@cache
def _lone(tokens: int) -> tuple[float, float]:
    """Time to the first token, and to each further one, of a lone request with so many prompt tokens."""
    outcome = simulate(ARRANGEMENTS["Aggregated"], [Arrival(0.0, tokens, 50)], until=60).outcome
    return outcome.ttft.at(50), outcome.tpot.at(50)


def share_kept(arrangement: Arrangement, trace: Trace) -> float:
    """The share of requests that keep both bounds."""
    run = simulate(arrangement, trace.arrivals, warm_up=_LEARNING * trace.seconds, until=trace.seconds)
    kept = 0
    for request in run.requests:
        arrival = request.arrival
        first, gap = _lone(max(64, 2 ** (arrival.prompt - 1).bit_length() * 3 // 4))
        gaps = (request.done_at - request.first_at) / max(1, arrival.answer - 1)
        kept += bool(request.done_at) and request.first_at - arrival.at <= _FIRST * first and gaps <= _GAP * gap
    return kept / len(run.requests)


def goodput(arrangement: Arrangement, trace: Trace, gpus: int) -> float:
    """The highest rate that keeps the bounds, in requests a second; the lowest of the range if none does."""
    low, high = (gpus * rate for rate in _RATES)
    for _ in range(_STEPS):
        rate = math.sqrt(low * high)
        low, high = (rate, high) if share_kept(arrangement, trace.at_rate(rate)) >= _KEPT else (low, rate)
    return low


def best(of: Callable[[int, int], Arrangement], gpus: int, trace: Trace) -> tuple[float, int]:
    """Goodput with the best number of P pods, and that number."""
    numbers = {max(1, gpus // 4), gpus // 2, max(1, 3 * gpus // 4)} - {gpus}
    return max((goodput(of(gpus, number), trace, gpus), number) for number in sorted(numbers))


def first_of(trace: Trace, requests: int, longest: int) -> Trace:
    """The first requests of a trace whose prompts are not too long."""
    fit = [one for one in trace.arrivals if one.prompt <= longest][:requests]
    return Trace.observed(tuple(_spread(fit)), trace.source)


def _spread(arrivals: Sequence[Arrival]) -> Iterator[Arrival]:
    """Requests of one time, evenly until the next time: Mooncake's times are multiples of three seconds."""
    groups = [list(group) for _, group in groupby(arrivals, key=lambda one: one.at)]
    for group, after in pairwise([*groups, groups[-1]]):
        for number, one in enumerate(group):
            yield replace(one, at=one.at + max(0.0, after[0].at - one.at) * number / len(group))


@click.command()
@click.argument("files", type=click.File("rb"), nargs=-1, required=True)
@click.option("--gpus", type=int, multiple=True, default=(2, 4, 8, 16), show_default=True)
@click.option("--requests", default=1500, show_default=True, help="For two GPUs; more GPUs have as many more.")
@click.option("--longest", default=16_384, show_default=True, help="Prompt tokens at most.")
def main(files: tuple[BinaryIO, ...], gpus: tuple[int, ...], requests: int, longest: int) -> None:
    """Print a table."""
    columns = ("trace", "GPUs", "Aggregated", "the same, short steps", "Always (P pods)", "Adaptive (P pods)")
    click.echo(f"| {' | '.join(columns)} | Adaptive to the better of Aggregated and Always |")
    click.echo("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for file in files:
        whole = read(file, file.name)
        for number in gpus:
            trace = first_of(whole, requests * number // 2, longest)
            alike = goodput(aggregated(number), trace, number)
            short = max(
                goodput(aggregated(number, BATCHED_TOKENS_OF_BOTH, policy), trace, number) for policy in _POLICIES
            )
            (split, of_split), (own, of_own) = (best(of, number, trace) for of in (always, adaptive))
            rates = f"{alike:.2f} | {short:.2f} | {split:.2f} ({of_split}) | {own:.2f} ({of_own})"
            name, ratio = file.name.rpartition("/")[2], own / max(alike, split)
            click.echo(f"| {name} | {number} | {rates} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
