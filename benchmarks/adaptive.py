"""`router.disaggregation`, simulated: `python -m benchmarks.adaptive`, two H200s with Llama-3.1-8B over NVLink.

Each load goes with equal arrivals through one P and one D that split every request (Always), through the same pods
where each request goes the way that costs least (Adaptive), and through two engines without the split (Aggregated).
Prints times in ms, and what Adaptive takes in parts of the better of the other two. Aggregated engines with the tokens
a step of Adaptive are there for comparison. The simulation knows what caches hold; the router finds it out.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import click

from benchmarks.advise.predicted import SETTINGS, Times, times_of
from benchmarks.llama import engine_kind
from pdinference.api.v1alpha1.defaults import BATCHED_TOKENS_OF_BOTH
from pdinference.performance.links import NVLINK
from pdinference_advise.simulation.arrangement import Arrangement, EngineKind, Split
from pdinference_advise.simulation.arrivals import PREFIX_BLOCK, Arrival
from pdinference_advise.simulation.run import simulate

PRODUCT: Final = "NVIDIA-H200"
KV_TOKENS: Final = 400_000
KV_BYTES: Final = 131_072
WARM_UP: Final = 10.0
TURN_S: Final = 4.0
"""From a question to the next one: an answer of 250 tokens and 1.5 s of thought."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that come at random.

    Attributes:
        lengths: Prompt and answer tokens, each as likely.
        rate: Requests, or conversations, a second.
        turns: Turns of a conversation; a further one adds the answer and a question of 150 tokens to the prompt.
    """

    lengths: tuple[tuple[int, int], ...]
    rate: float
    turns: int = 1

    def __str__(self) -> str:
        of = " or ".join(f"{prompt:,}/{answer:,}" for prompt, answer in self.lengths)
        return f"{of} at {self.rate:g}/s" + (f", {self.turns} turns" if self.turns > 1 else "")

    def arrivals(self, seconds: float, seed: int) -> list[Arrival]:
        """The requests of so many seconds."""
        return sorted(self._all(seconds, random.Random(seed)), key=lambda one: one.at)

    def _all(self, seconds: float, chance: random.Random) -> Iterator[Arrival]:
        at, number = 0.0, 0
        while (at := at + chance.expovariate(self.rate)) < seconds:
            number += 1
            prompt, answer = chance.choice(self.lengths)
            for turn in range(self.turns):
                tokens, begins = prompt + turn * (answer + 150), at + turn * TURN_S
                prefix, after = (_blocks(number, end) if self.turns > 1 else () for end in (tokens, tokens + answer))
                if begins < seconds:
                    yield Arrival(begins, tokens, answer, prefix, after=after)


LOADS: Final = (
    Load(((2500, 400),), 6),
    Load(((300, 700),), 12),
    Load(((12000, 80),), 2),
    Load(((200, 120), (6000, 500)), 4),
    Load(((16000, 300),), 1.5),
    Load(((700, 40),), 30),
    Load(((4000, 250),), 1.2, turns=6),
)
"""Those of issue 36."""


def _blocks(conversation: int, tokens: int) -> tuple[int, ...]:
    return tuple(1000 * conversation + block for block in range(tokens // PREFIX_BLOCK))


def kind(tokens: int) -> EngineKind:
    """Engines with so many tokens a step."""
    return engine_kind(replace(SETTINGS, max_num_batched_tokens=tokens), KV_TOKENS, PRODUCT)


def always(gpus: int, parameter: int) -> Arrangement:
    """So many GPUs, of which some are for P."""
    return Arrangement(kind(2048), gpus - parameter, Split(kind(8192), parameter, NVLINK, KV_BYTES))


def adaptive(gpus: int, parameter: int) -> Arrangement:
    """The same, each request its own way."""
    short = kind(BATCHED_TOKENS_OF_BOTH)
    return Arrangement(short, gpus - parameter, Split(short, parameter, NVLINK, KV_BYTES, adaptive=True))


def aggregated(gpus: int, tokens: int = 8192, policy: str = "cache_aware") -> Arrangement:
    """Unsplit engines with so many tokens a step."""
    return Arrangement(kind(tokens), gpus, policy=policy)


ARRANGEMENTS: Final = {"Always": always(2, 1), "Aggregated": aggregated(2), "Adaptive": adaptive(2, 1)}
SHORT_STEPS: Final = {"Aggregated, short steps": aggregated(2, BATCHED_TOKENS_OF_BOTH)}
"""Shows how much of the gain is that of shorter steps alone."""


def measure(load: Load, arrangement: Arrangement, seconds: float, seeds: int) -> Times:
    """The medians over some runs."""
    runs = []
    for seed in range(seeds):
        arrivals = load.arrivals(seconds, seed)
        runs.append(times_of(simulate(arrangement, arrivals, warm_up=WARM_UP, until=seconds).outcome))
    flat = [median(values) for values in zip(*(run.flat for run in runs), strict=True)]
    return Times((flat[0], flat[1]), (flat[2], flat[3]), flat[4], flat[5])


@click.command()
@click.option("--seconds", default=70.0, show_default=True)
@click.option("--seeds", default=3, show_default=True)
def main(seconds: float, seeds: int) -> None:
    """Print a table."""
    click.echo("| load | way | TTFT p50 / p99 | TPOT p50 / p99 | gap p99 | whole p50 |")
    click.echo("| --- | --- | --- | --- | ---: | ---: |")
    for load in LOADS:
        found = {name: measure(load, one, seconds, seeds) for name, one in (ARRANGEMENTS | SHORT_STEPS).items()}
        for name, times in found.items():
            numbers = "{:,.0f} / {:,.0f} | {:.1f} / {:.1f} | {:.0f} | {:,.0f}".format(*times.flat)
            click.echo(f"| {load if name == 'Always' else ''} | {name} | {numbers} |")
        best = [min(values) for values in zip(found["Always"].flat, found["Aggregated"].flat, strict=True)]
        parts = [own / other for own, other in zip(found["Adaptive"].flat, best, strict=True)]
        shares = "{:.2f} / {:.2f} | {:.2f} / {:.2f} | {:.2f} | {:.2f}".format(*parts)
        click.echo(f"| | Adaptive to the better one | {shares} |")


if __name__ == "__main__":
    main()
