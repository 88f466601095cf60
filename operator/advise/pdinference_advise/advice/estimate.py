"""What an arrangement can carry at most, by its mean work alone: a cheap bound that leaves out what cannot keep up.

Tests: tests/advise/advice/test_advice.py
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pdinference_advise.advice.engines import Built
from pdinference_advise.advice.objectives import RequestObjectives
from pdinference_advise.simulation.arrangement import EngineKind
from pdinference_advise.simulation.arrivals import Arrival


@dataclass(frozen=True, slots=True)
class Demand:
    """The mean work of a load.

    Attributes:
        rate: Requests a second.
        prompt: Mean prompt tokens.
        computed: Mean prompt tokens that no earlier request had at the same place.
        pairs: Mean pairs of a prompt token and one before it.
        answer: Mean answer tokens.
        context: Mean tokens of context of a request while it runs.
    """

    rate: float
    prompt: float
    computed: float
    pairs: float
    answer: float
    context: float


def demand_of(arrivals: tuple[Arrival, ...], seconds: float, repeated: float) -> Demand:
    """The mean work of requests.

    Args:
        arrivals: The requests.
        seconds: The time in which they come.
        repeated: Share of the prompt tokens that an earlier prompt begins with.
    """
    number = len(arrivals)
    prompt = sum(arrival.prompt for arrival in arrivals) / number
    answer = sum(arrival.answer for arrival in arrivals) / number
    tokens = sum(arrival.answer * (arrival.prompt + arrival.answer / 2) for arrival in arrivals)
    return Demand(
        rate=number / seconds,
        prompt=prompt,
        computed=prompt * (1 - repeated),
        pairs=sum(arrival.prompt**2 for arrival in arrivals) / 2 / number * (1 - repeated),
        answer=answer,
        context=tokens / (answer * number),
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """Shares of the capacity that the mean work takes; above 1 it does not fit.

    Attributes:
        prefill: Of P's time, or of D's without P.
        decode: Of the tokens that D can generate, and P if it answers, within the objective for a token.
        transfer: Of the way.
        ttft: Seconds to the first token of a mean prompt when nothing else is there.
    """

    prefill: float
    decode: float
    transfer: float
    ttft: float

    @property
    def load(self) -> float:
        """The largest share."""
        return max(self.prefill, self.decode, self.transfer)


_FULL: Final = 0.98
"""Share of time that prompts may take in an engine that decodes too."""


def estimate(built: Built, demand: Demand, objectives: RequestObjectives) -> Estimate:
    """Bound an arrangement. It is optimistic: no queue, full steps, no burst."""
    arrangement = built.arrangement
    split = arrangement.split
    of_p = split.kind if split else arrangement.kind
    engines = split.engines if split else arrangement.engines
    prefill = demand.rate * _prompt_seconds(of_p, demand) / engines
    tpot, prompts = objectives.default.tpot, min(_FULL, prefill)
    most = arrangement.engines * _tokens_a_second(arrangement.kind, demand, tpot, 0.0 if split else prompts)
    if split and split.adaptive:
        most += split.engines * _tokens_a_second(of_p, demand, tpot, prompts)
    decode = demand.rate * demand.answer / most if most else math.inf
    transfer, moving = 0.0, 0.0
    if split:
        links = split.groups or min(split.engines, arrangement.engines)
        moving = demand.prompt * split.token_bytes / split.way.rate
        transfer = demand.rate * moving / links
    alone = of_p.steps.prefill(max(1, round(demand.computed)), demand.pairs, 0, 1)
    latency = split.way.latency + arrangement.service.hand_over if split else 0.0
    return Estimate(prefill, decode, transfer, arrangement.service.request + alone + moving + latency)


def _prompt_seconds(kind: EngineKind, demand: Demand) -> float:
    """Seconds of a mean prompt in steps that are full."""
    step = kind.limits.step_tokens
    share = demand.computed / step
    return share * kind.steps.prefill(step, demand.pairs / share, 0, max(1, round(1 / share)))


def _tokens_a_second(kind: EngineKind, demand: Demand, tpot: float, prompts: float) -> float:
    """Most tokens of an engine: with as many requests as its cache holds, each step within the objective."""
    most = int(min(kind.limits.requests, kind.limits.kv_tokens / (demand.context + kind.limits.block / 2)))

    def seconds(running: int) -> float:
        step = kind.steps.decode_step(running, demand.context)
        return step / (1 - prompts)

    running = _largest(most, lambda number: seconds(number) <= tpot)
    return running / seconds(running) if running else 0.0


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `most` for which a condition holds that larger numbers only break; 0 without one."""
    low, high = 0, max(0, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
