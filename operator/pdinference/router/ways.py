"""Which way a request goes: through P and D, to D alone, or to P alone. Pure: what pods have to do in, a way out.

Each way has a predicted cost in seconds: those that the request takes, and those that it takes from all others. The
request is computed, KV cache may move, and its answer makes each step of its pod a little longer. A prompt that a pod
computes stops the answers of the same pod meanwhile. Prompts wait for prompts. With objectives, the cheapest way that
keeps them is taken.

Tests: tests/router/test_ways.py; benchmarks/adaptive.py simulates loads with it
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

import msgspec

from pdinference.api.v1alpha1.router import WhenNoPrefill
from pdinference.router.pod import Pod

FIRST: Final = 10.0
"""A second before the first token costs as much as so many after it: a client sees nothing meanwhile."""
_GAP: Final = 1.0
"""A longer gap costs more than its seconds: by this factor for each step that it is as long as."""
_MOST_BUSY: Final = 0.9
"""A pod that is busier than this counts as this busy, so that no cost is infinite."""
_SAFE: Final = 0.8
"""Part of an objective that a prediction may take: half of the requests take longer than predicted."""
MISSED_STEPS: Final = 1.5
"""Steps of D from the arrival of KV cache to the first token: the rest of the one under way, and one of its own."""


class Way(StrEnum):
    """How a request is served."""

    SPLIT = "split"
    """P computes the prompt, D the answer."""
    DECODE = "decode"
    """D alone."""
    PARAMETER = "parameter"
    """P alone."""


ALL_WAYS: Final = frozenset(Way)
WITHOUT_DECODE: Final = ALL_WAYS - {Way.DECODE}


def allowed_ways(when_no_prefill: WhenNoPrefill) -> frozenset[Way]:
    """The ways to choose from. Where D may not compute prompts, it computes none by choice."""
    return ALL_WAYS if when_no_prefill == "Serve" else WITHOUT_DECODE


class RoleTimes(msgspec.Struct, frozen=True):
    """How long things take on the pods of a role, in seconds.

    Attributes:
        request: A request, beside its prompt tokens and its steps.
        token: To compute a prompt token.
        step: A step without answers.
        answer: By how much an answer makes a step longer.
        step_tokens: Prompt tokens of a step at most: a prompt is computed in several.
    """

    request: float
    token: float
    step: float
    answer: float
    step_tokens: float


class WayTimes(msgspec.Struct, frozen=True):
    """How long things take, in seconds.

    Attributes:
        parameter: On P pods.
        decode: On D pods.
        hand_over: From the end of a prompt on P until D has its KV cache, beside the tokens.
        moved_token: For each token that D had not.
        join: By how much KV cache that arrives delays a step of D.
    """

    parameter: RoleTimes
    decode: RoleTimes
    hand_over: float
    moved_token: float
    join: float


class WayObjectives(msgspec.Struct, frozen=True):
    """What requests should keep (`spec.objectives`), in seconds.

    Attributes:
        ttft: Until the first token.
        tpot: Between two tokens of an answer, as a mean.
    """

    ttft: float = math.inf
    tpot: float = math.inf

    def missed(self, one: "Prediction") -> int:
        """The number of objectives that a request would miss."""
        return (one.first_token > _SAFE * self.ttft) + (one.token > _SAFE * self.tpot)


NO_OBJECTIVES: Final = WayObjectives()


class Place(msgspec.Struct, frozen=True):
    """A pod, and what it would have to do for a request.

    Attributes:
        pod: The pod.
        answers: Answers that it generates now.
        ahead: Seconds of prompts that it has to compute before.
        uncached: Prompt tokens of the request that it would have to compute.
        busy: Share of its recent time in which it computed prompts, 0 to 1.
    """

    pod: Pod
    answers: float
    ahead: float
    uncached: float
    busy: float = 0.0


class Prediction(msgspec.Struct, frozen=True):
    """What a way would take.

    Attributes:
        way: The way.
        pod: The pod that computes the prompt.
        uncached: Prompt tokens that it computes.
        first_token: Seconds until the first token.
        token: Seconds between two tokens of the answer, as a mean.
        cost: Seconds that it costs the request and all others, with the weights of this module.
    """

    way: Way
    pod: Pod
    uncached: float
    first_token: float
    token: float
    cost: float


class _Part(msgspec.Struct, frozen=True):
    """What the prompt or the answer takes at a pod.

    Attributes:
        first_token: Seconds until the first token; 0 of an answer whose prompt the same pod computes.
        token: Seconds between two tokens; 0 of a prompt.
        cost: All that it costs.
    """

    first_token: float
    token: float
    cost: float


def cheapest_first(
    answer: float,
    parameter: Sequence[Place],
    decode: Sequence[Place],
    times: WayTimes,
    *,
    ways: Collection[Way] = ALL_WAYS,
    objectives: WayObjectives = NO_OBJECTIVES,
) -> list[Prediction]:
    """What each way would take, by the best pods for it. The best way comes first.

    It is the cheapest one of those that miss the fewest objectives.

    Args:
        answer: Tokens that the answer is expected to have.
        parameter: The P pods.
        decode: The D pods.
        times: How long things take.
        ways: The ways that are allowed. One that no pod can serve is not among the results.
        objectives: What the request should keep.
    """
    order: Callable[[Prediction], Any] = _cost
    if objectives != NO_OBJECTIVES:
        order = lambda one: (objectives.missed(one), one.cost)  # noqa: E731 - without objectives, it takes time
    on_p = [(place, _prompt(place, times.parameter)) for place in parameter]
    of_way = {
        Way.DECODE: (_alone(Way.DECODE, one, _prompt(one, times.decode), times.decode, answer) for one in decode),
        Way.PARAMETER: (_alone(Way.PARAMETER, one, prompt, times.parameter, answer) for one, prompt in on_p),
        Way.SPLIT: _split(on_p, decode, times, answer),
    }
    found = (min(of_way[way], key=order, default=None) for way in of_way if way in ways)
    return sorted((one for one in found if one is not None), key=order)


_cost = attrgetter("cost")


def _alone(way: Way, place: Place, prompt: _Part, of: RoleTimes, answer: float) -> Prediction:
    after = _answer(place, of, answer)
    return Prediction(way, place.pod, place.uncached, prompt.first_token, after.token, prompt.cost + after.cost)


def _split(
    on_p: Sequence[tuple[Place, _Part]], decode: Sequence[Place], times: WayTimes, answer: float
) -> Iterator[Prediction]:
    """KV cache gets from P to D within a group alone; there the D pod with the fewest answers gets it."""
    readers = dict[str, Place]()
    for place in decode:
        group = place.pod.observed.group
        if group not in readers or place.answers < readers[group].answers:
            readers[group] = place
    answers = {group: _moved(place, times, answer) for group, place in readers.items()}
    for place, prompt in on_p:
        if (part := answers.get(place.pod.observed.group)) is not None:
            first, cost = prompt.first_token + part.first_token, prompt.cost + part.cost
            yield Prediction(Way.SPLIT, place.pod, place.uncached, first, part.token, cost)


def _moved(place: Place, times: WayTimes, answer: float) -> _Part:
    """What D takes of a request whose prompt P has computed."""
    of = times.decode
    step = of.step + of.answer * (place.answers + 1)
    # Prompts that D computes itself take all tokens of its steps, so the first token waits for them.
    first = place.ahead + times.hand_over + times.moved_token * place.uncached + MISSED_STEPS * step
    after = _answer(place, of, answer)
    return _Part(first, after.token, FIRST * first + place.answers * times.join + after.cost)


def _prompt(place: Place, of: RoleTimes) -> _Part:
    """What a pod takes to compute the prompt, and what others lose meanwhile: answers, and prompts that wait for it.

    On a pod that is busy for a share b of its time, later prompts lose b / (1 - b) times the time of this one: the
    waiting time of a queue with one server grows so with its work (Pollaczek-Khinchine).
    """
    prompt, busy = of.token * place.uncached, min(place.busy, _MOST_BUSY)
    # It waits for the rest of a step, if the pod has answers.
    step = of.step + of.answer * place.answers
    first = of.request + place.ahead + prompt + (step if place.answers else 0.0)
    # Each step with a part of the prompt has a token of each answer too, and reads the weights once for both.
    stops = place.uncached * max(0.0, of.token - of.step / of.step_tokens)
    gap = stops * min(1.0, of.step_tokens / place.uncached) / step if step else 0.0
    lost = place.answers * stops * (1 + _GAP * gap) + FIRST * prompt * busy / (1 - busy)
    return _Part(first, 0.0, FIRST * first + lost)


def _answer(place: Place, of: RoleTimes, answer: float) -> _Part:
    """What an answer costs at a pod: its tokens, and how much longer each makes the steps of the others.

    While the pod computes prompts, each of its steps has as many prompt tokens as there may be, beside a token of each
    answer.
    """
    answers, busy = of.answer * (place.answers + 1), min(place.busy, _MOST_BUSY)
    step, beside_prompts = of.step + answers, max(of.step, of.token * of.step_tokens) + answers
    each = 1 / ((1 - busy) / step + busy / beside_prompts) if step else 0.0
    return _Part(0.0, each, answer * (each + place.answers * of.answer))
