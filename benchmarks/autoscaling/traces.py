"""Loads: when requests come, how long their prompts are, and how much they generate. Seeded, so the same each time."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.llama import KV_TOKENS
from pdinference_advise.simulation.arrivals import Arrival


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of request: medians of two log-normal distributions, and their spread."""

    prompt: float
    output: float
    spread: float = 0.6

    @property
    def mean_prompt(self) -> float:
        """Mean number of prompt tokens, before the limits."""
        return self.prompt * math.exp(self.spread**2 / 2)

    @property
    def mean_output(self) -> float:
        """Mean number of output tokens, before the limits."""
        return self.output * math.exp(self.spread**2 / 2)

    @property
    def kv_token_rounds(self) -> float:
        """KV tokens held times tokens generated, as a mean: a request holds its prompt and what it has generated."""
        return self.mean_output * self.mean_prompt + self.mean_output**2 * math.exp(self.spread**2) / 2


CHAT = Shape(5000, 600)
DOCUMENT = Shape(24_000, 150, 0.3)
REASONING = Shape(2000, 3000, 0.4)
AGENT = Shape(32_000, 1000, 0.3)
REPORT = Shape(24_000, 3000, 0.3)
REVIEW = Shape(16_000, 800, 0.3)
_MAX_PROMPT, _MAX_OUTPUT = 60_000, 8000

Streams = dict[Shape, Callable[[float], float]]
"""Requests a second of each shape, at a time."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A load.

    Attributes:
        name: What the report calls it.
        seconds: How long it lasts.
        build: Makes the streams of one seed.
        cache_tokens: What the KV cache of a D pod holds; smaller where weights take most of a card.
    """

    name: str
    seconds: float
    build: Callable[[random.Random, float], Streams]
    cache_tokens: int = KV_TOKENS

    def streams(self, seed: int) -> Streams:
        """The rates of one seed."""
        return self.build(random.Random(f"{self.name}/{seed}/rates"), self.seconds)

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """The requests of one seed, in order: Poisson processes with the rates of the streams."""
        rng = random.Random(f"{self.name}/{seed}/requests")
        streams = self.streams(seed)
        # A request always fits into an empty cache: vLLM refuses a larger one.
        most_prompt, most_output = (
            min(_MAX_PROMPT, self.cache_tokens * 3 // 4),
            min(_MAX_OUTPUT, self.cache_tokens // 4),
        )
        ceiling = sum(max(rate(at) for at in range(int(self.seconds))) for rate in streams.values()) * 1.01
        now = 0.0
        while (now := now + rng.expovariate(ceiling)) < self.seconds:
            level = rng.random() * ceiling
            for shape, rate in streams.items():
                level -= rate(now)
                if level < 0:
                    yield Arrival(now, _draw(rng, shape.prompt, shape.spread, most_prompt),
                                  _draw(rng, shape.output, shape.spread, most_output))  # fmt: skip
                    break


def _draw(rng: random.Random, median: float, spread: float, most: int) -> int:
    return max(16, min(most, round(rng.lognormvariate(math.log(median), spread))))


def _pulses(rng: random.Random, seconds: float, *, number: int, length: tuple[float, float], ramp: float,
            ) -> Callable[[float], float]:  # fmt: skip
    """0, and 1 in `number` pulses of random beginning and length, with ramps."""
    slot = seconds / number
    pulses = []
    for index in range(number):
        lasts = rng.uniform(*length)
        begin = index * slot + rng.uniform(0.1 * slot, max(0.1 * slot, 0.9 * slot - lasts))
        pulses.append((begin, begin + lasts))

    def level(at: float) -> float:
        return max((min(1.0, (at - begin) / ramp, (end - at) / ramp) for begin, end in pulses
                    if begin <= at <= end), default=0.0)  # fmt: skip

    return level


def _steady(_rng: random.Random, _seconds: float) -> Streams:
    return {CHAT: lambda _at: 10.0}


def _burst(rng: random.Random, seconds: float) -> Streams:
    pulse = _pulses(rng, seconds, number=4, length=(240, 480), ramp=20)
    return {CHAT: lambda at: 5 + 15 * pulse(at)}


def _diurnal(rng: random.Random, seconds: float) -> Streams:
    phase = rng.uniform(0, 2 * math.pi)
    return {CHAT: lambda at: 11 - 9 * math.cos(phase + 2 * math.pi * at / seconds)}


def _long_pulses(rng: random.Random, seconds: float) -> Callable[[float], float]:
    return _pulses(rng, seconds, number=3, length=(420, 720), ramp=60)


def _long_prompts(rng: random.Random, seconds: float) -> Streams:
    pulse = _long_pulses(rng, seconds)
    return {CHAT: lambda _at: 6.0, DOCUMENT: lambda at: 0.3 + 4.2 * pulse(at)}


def _flash(rng: random.Random, seconds: float) -> Streams:
    begin = rng.uniform(0.2, 0.5) * seconds
    return {CHAT: lambda at: 4 + (18 * math.exp(-(at - begin) / 600) if at > begin else 0)}


def _reasoning(rng: random.Random, seconds: float) -> Streams:
    pulse = _long_pulses(rng, seconds)
    return {CHAT: lambda _at: 5.0, REASONING: lambda at: 0.3 + 4 * pulse(at)}


def _short_bursts(rng: random.Random, seconds: float) -> Streams:
    pulse = _pulses(rng, seconds, number=8, length=(90, 240), ramp=10)
    return {CHAT: lambda at: 6 + 12 * pulse(at)}


def _levels(rng: random.Random, seconds: float) -> Streams:
    steps: list[tuple[float, float]] = []
    at = 0.0
    while at < seconds:
        steps.append((at, min(18.0, max(2.0, rng.lognormvariate(math.log(7), 0.6)))))
        at += rng.uniform(60, 300)

    def rate(now: float) -> float:
        return next(level for begin, level in reversed(steps) if begin <= now)

    return {CHAT: rate}


def _sawtooth(rng: random.Random, seconds: float) -> Streams:
    period = seconds / 4
    phase = rng.uniform(0, period)
    return {CHAT: lambda at: 4 + 13 * ((at + phase) % period) / period, DOCUMENT: lambda _at: 0.4}


def _in_long_pulses(kind: Shape, base: float, more: float) -> Callable[[random.Random, float], Streams]:
    """One kind of requests: `base` a second, and `more` in pulses."""

    def streams(rng: random.Random, seconds: float) -> Streams:
        pulse = _long_pulses(rng, seconds)
        return {kind: lambda at: base + more * pulse(at)}

    return streams


def _small_steady(_rng: random.Random, _seconds: float) -> Streams:
    return {CHAT: lambda _at: 7.0}


def _small_burst(rng: random.Random, seconds: float) -> Streams:
    pulse = _pulses(rng, seconds, number=4, length=(240, 480), ramp=20)
    return {CHAT: lambda at: 3 + 8 * pulse(at)}


def _small_mixed(rng: random.Random, seconds: float) -> Streams:
    pulse = _long_pulses(rng, seconds)
    return {CHAT: lambda _at: 6.0, AGENT: lambda at: 0.1 + 1.5 * pulse(at)}


TRACES = (
    Trace("steady", 3600, _steady),
    Trace("diurnal", 7200, _diurnal),
    Trace("burst", 3600, _burst),
    Trace("long prompts", 3600, _long_prompts),
    Trace("flash crowd", 3600, _flash),
    Trace("reasoning", 3600, _reasoning),
    Trace("short bursts", 3600, _short_bursts),
    Trace("levels", 3600, _levels),
    Trace("sawtooth", 3600, _sawtooth),
)

MEMORY_TRACES = (
    Trace("long contexts", 3600, _in_long_pulses(AGENT, 1, 4)),
    Trace("long contexts and answers", 3600, _in_long_pulses(REPORT, 0.5, 2)),
    Trace("small cache, steady", 3600, _small_steady, 40_000),
    Trace("small cache, burst", 3600, _small_burst, 40_000),
    Trace("small cache, long contexts", 3600, _in_long_pulses(REVIEW, 1.5, 5), 120_000),
    Trace("small cache, reasoning", 3600, _in_long_pulses(REASONING, 1, 4), 60_000),
    Trace("small cache, mixed", 3600, _small_mixed, 160_000),
)
"""Where KV memory limits decode: contexts of 16,000 to 60,000 tokens, and caches that hold five to fifteen requests."""
