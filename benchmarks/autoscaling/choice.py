"""Which pods the router chooses: its policies with a fixed number of pods in the simulation.

    uv run --no-sync python -m benchmarks.autoscaling.choice

P is 85 % busy. D has as many pods as the load needs at 75 %. No two prompts have the same beginning, so of policies
with an affinity only the cost is visible.
"""

import argparse
import math
import os
import random
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import mean, quantiles
from typing import get_args

from benchmarks.autoscaling.pods import arrangement, prefill_seconds, token_seconds
from benchmarks.autoscaling.traces import CHAT, DOCUMENT, Shape, Streams, Trace
from benchmarks.llama import KV_TOKENS
from pdinference.api.names import Role
from pdinference.api.v1alpha1.router import RouterPolicy
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet

_P_PODS = 4
_P_BUSY = 0.85
_D_BUSY = 0.75
_REQUESTS = 5000
_POLICIES = get_args(RouterPolicy)

_SHORT = Shape(1000, 300)
LOADS: Mapping[str, Mapping[Shape, float]] = {
    "equal prompts (5,000 tokens)": {Shape(5000, 600, 0.0): 1.0},
    "chat (median 5,000)": {CHAT: 1.0},
    "unequal: short chat (1,000), one in ten a document (24,000)": {_SHORT: 0.9, DOCUMENT: 0.1},
}
"""Shapes, and their share of the requests."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds, at the median and the 99th percentile."""

    first: tuple[float, float]
    whole: tuple[float, float]


def _trace(name: str, load: str, rate: float, seconds: float) -> Trace:
    def streams(_rng: random.Random, _seconds: float) -> Streams:
        return {shape: partial(_constant, rate * share) for shape, share in LOADS[load].items()}

    return Trace(name, seconds, streams)


def _constant(rate: float, _at: float) -> float:
    return rate


def simulated(load: str, routing: str, seed: int) -> Times:
    """One run."""
    sample = _trace("sample", load, 5000, 1).arrivals(seed)
    rate = _P_BUSY * _P_PODS / mean(prefill_seconds(one.prompt) for one in sample)
    rounds = sum(share * shape.kv_token_rounds for shape, share in LOADS[load].items())
    tokens = sum(share * shape.mean_output for shape, share in LOADS[load].items())
    kv = rate * rounds * token_seconds(KV_TOKENS, rounds / tokens)
    replicas = {Role.PARAMETER: _P_PODS, Role.DECODE: max(2, math.ceil(kv / KV_TOKENS / _D_BUSY))}
    random.seed(seed)  # some policies choose at random
    clock = Clock()
    fleet = SimulatedFleet(clock, arrangement(replicas, routing=routing))
    fleet.load(_trace(load, load, rate, _REQUESTS / rate).arrivals(seed))
    clock.run()
    first = quantiles((one.first_at - one.arrival.at for one in fleet.requests), n=100)
    whole = quantiles((one.done_at - one.arrival.at for one in fleet.requests), n=100)
    return Times((first[49], first[98]), (whole[49], whole[98]))


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=(1, 2, 3))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    jobs = list(product(LOADS, _POLICIES, options.seeds))
    with ProcessPoolExecutor(options.processes) as executor:
        found = dict(zip(jobs, executor.map(simulated, *zip(*jobs, strict=True)), strict=True))
    print("| load | policy | first token p50 / p99 s | whole request p50 / p99 s |")
    print("| --- | --- | --- | --- |")
    for load, routing in product(LOADS, _POLICIES):
        runs = [found[load, routing, seed] for seed in options.seeds]
        cells = (
            " / ".join(f"{mean(getattr(run, name)[place] for run in runs):.2f}" for place in (0, 1))
            for name in ("first", "whole")
        )
        print(f"| {load} | `{routing}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
