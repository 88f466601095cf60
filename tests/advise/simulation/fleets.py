"""A small fleet for tests of the simulation: pods of the benchmark, and loads."""

import random
from collections.abc import Iterator

from benchmarks.autoscaling.pods import arrangement
from pdinference.api.names import Role
from pdinference_advise.simulation.arrangement import Arrangement
from pdinference_advise.simulation.arrivals import Arrival


def pods(parameter: int = 1, decode: int = 1, *, cache_tokens: int = 899_104) -> Arrangement:
    """P and D on H200s."""
    counts = {Role.PARAMETER: parameter, Role.DECODE: decode}
    return arrangement(counts, routing="least_loaded", cache_tokens=cache_tokens)


def poisson(
    rate: float, seconds: float, *, prompt: int = 5000, answer: int = 200, begin: float = 0.0
) -> Iterator[Arrival]:
    """Requests of one length at random times."""
    rng, at = random.Random(7), begin  # noqa: S311 - nothing secret
    while (at := at + rng.expovariate(rate)) < begin + seconds:
        yield Arrival(at, prompt, answer)
