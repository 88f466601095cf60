"""The simulated pods against the measured ones: one P, one D, prompts of 8,000 tokens, 150 tokens out."""

import random
from collections.abc import Generator
from statistics import quantiles
from typing import Any

import simpy

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.fleet import Fleet
from benchmarks.autoscaling.traces import Arrival
from pdinference.api.names import ENGINE_ROLES

MEASURED = {3.0: (0.254, 1.289, 5.4, 1.056), 4.5: (0.854, 2.957, 5.6, 1.712)}
"""Requests a second: TTFT median and 99 %, ITL median in ms, end-to-end median; seconds but for ITL."""
_REQUESTS = 4000


def simulated(rate: float) -> tuple[float, float, float, float]:
    """The same figures from the simulation."""
    env = simpy.Environment()
    fleet = Fleet(env, replicas=dict.fromkeys(ENGINE_ROLES, 1), startup=0, seed=0, routing=const.ROUTING)
    rng = random.Random(0)

    def clients() -> Generator[simpy.Event, Any, None]:
        for _ in range(_REQUESTS):
            yield env.timeout(rng.expovariate(rate))
            fleet.submit(Arrival(env.now, 8000, 150))

    env.process(clients())
    env.run()
    first = quantiles([r.first_token_at - r.arrival.at for r in fleet.finished], n=100)
    pace = quantiles([(r.finished_at - r.first_token_at) / r.arrival.output for r in fleet.finished], n=100)
    whole = quantiles([r.finished_at - r.arrival.at for r in fleet.finished], n=100)
    return first[49], first[98], 1000 * pace[49], whole[49]


def comparison() -> str:
    """A table in Markdown."""
    lines = ["| requests/s | | TTFT p50 s | TTFT p99 s | ITL p50 ms | E2E p50 s |", "| ---: " + "| --- " * 5 + "|"]
    for rate, measured in MEASURED.items():
        for kind, figures in (("measured", measured), ("simulated", simulated(rate))):
            ttft, ttft99, itl, e2e = figures
            lines.append(f"| {rate} | {kind} | {ttft:.2f} | {ttft99:.2f} | {itl:.1f} | {e2e:.2f} |")
    return "\n".join(lines) + "\n"
