"""Runs every trace with every policy, and prints what came of it as Markdown.

uv run --no-sync python -m benchmarks.autoscaling --seeds 21 22
"""

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from itertools import product
from statistics import mean
from typing import get_args

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.policies import ALL
from benchmarks.autoscaling.run import Outcome, simulate
from benchmarks.autoscaling.traces import TRACES
from pdinference.api.v1alpha1.router import RouterPolicy

UNSEEN_SEEDS = (41, 42, 43, 44)
"""The presets were tuned on seeds 1 to 8 and looked at on 21 to 24 and 31 to 34; README.md says of which traces."""

_HEAD = "| trace | policy | kept both | TTFT | TPOT | TTFT p99 s | GPU-hours | over | under | flaps |"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=UNSEEN_SEEDS, help="Default: those that the presets were not tuned on."
    )
    parser.add_argument("--startup", type=float, default=const.STARTUP_SECONDS, help="Seconds until a pod is ready.")
    parser.add_argument("--traces", nargs="+", default=[trace.name for trace in TRACES], help="Default: all.")
    parser.add_argument(
        "--routing", choices=get_args(RouterPolicy), default=const.ROUTING, help="How the router chooses pods."
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="How many at a time.")
    options = parser.parse_args()
    chosen = [index for index, trace in enumerate(TRACES) if trace.name in options.traces]
    jobs = list(product(chosen, range(len(ALL)), options.seeds, [options.startup], [options.routing]))
    with ProcessPoolExecutor(options.processes) as executor:
        outcomes = dict(zip(jobs, executor.map(_run, jobs), strict=True))
    print(_HEAD)
    print("| --- " * 2 + "| ---: " * 8 + "|")
    for trace, policy in product(chosen, range(len(ALL))):
        of_seeds = [outcomes[trace, policy, seed, options.startup, options.routing] for seed in options.seeds]
        name = TRACES[trace].name
        print(f"| {name} | {ALL[policy].name} {_cells(of_seeds)}")


def _run(job: tuple[int, int, int, float, str]) -> Outcome:
    trace, policy, seed, startup, routing = job
    return simulate(TRACES[trace], seed, ALL[policy], startup=startup, routing=routing)


def _cells(outcomes: Sequence[Outcome]) -> str:
    """The means over the seeds."""
    of = {field.name: mean(getattr(outcome, field.name) for outcome in outcomes) for field in fields(Outcome)}
    return (
        f"| {of['met']:.1%} | {of['ttft']:.1%} | {of['tpot']:.1%} | {of['ttft_p99']:.1f} | {of['gpu_hours']:.1f} "
        f"| {of['over']:.1f} | {of['under']:.1f} | {of['flaps']:.0f} |"
    )


if __name__ == "__main__":
    main()
