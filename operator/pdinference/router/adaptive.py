"""Chooses the way of each request by its predicted cost, and learns from what came of it (`router.disaggregation`).

Tests: tests/router/test_adaptive.py
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from pdinference.router.calls import Call
from pdinference.router.pieces import chain_of, of_answer
from pdinference.router.pod import Pod
from pdinference.router.pods import Pods
from pdinference.router.prefixes import Chain, PrefixIndex
from pdinference.router.speeds import Speeds
from pdinference.router.usage import Usage
from pdinference.router.ways import NO_OBJECTIVES, Place, Prediction, Way, WayObjectives, cheapest_first
from pdinference.router.why import WayReason, Why

_FORGET: Final = 0.05
"""Weight of the last answer in the share of the expected cache that was there."""


@dataclass(slots=True)
class Choice:
    """The way of a request, and what is known of it.

    Attributes:
        predicted: What it should take.
        others: What the other ways would, the cheapest of each.
        chain: Its prompt.
        known: By pod: bytes of the chain whose KV cache it should have.
        prompt: Estimate of its prompt tokens.
        learning: Whether it was taken because too little is known yet.
        beside: Answers of the pod that answers it, with this one: at its first token, or before if it was no stream.
        whole_seconds: Of an answer that was no stream: from the end of the prompt on P, or from the beginning where one
            pod serves it, to its end. None for a stream.
    """

    predicted: Prediction
    others: Sequence[Prediction]
    chain: Chain
    known: Mapping[Pod, int]
    prompt: float
    learning: bool
    beside: float = 0.0
    whole_seconds: float | None = None

    @property
    def is_alone(self) -> bool:
        """Whether one pod serves it."""
        return self.predicted.way is not Way.SPLIT

    @property
    def reason(self) -> WayReason:
        """Why it goes this way."""
        if self.learning:
            return WayReason.LEARNING
        return WayReason.COST if all(self.predicted.cost <= one.cost for one in self.others) else WayReason.OBJECTIVES

    @property
    def expected(self) -> float:
        """Prompt tokens that should be in the cache of the pod that computes the prompt."""
        return max(0.0, self.prompt - self.predicted.uncached)

    def explained(self, usage: Usage | None) -> Why:
        """Why the request went its way.

        Args:
            usage: What vLLM said of the answer; None if that is not known.
        """
        found = {str(one.way): one for one in (self.predicted, *self.others)}
        return Why(
            way=self.predicted.way,
            reason=self.reason,
            prompt_tokens=round(self.prompt),
            expected_cached_tokens=round(self.expected),
            cached_tokens=None if usage is None else usage.cached,
            predicted_first_token_seconds={way: round(one.first_token, 4) for way, one in found.items()},
            predicted_token_seconds={way: round(one.token, 4) for way, one in found.items()},
            costs={way: round(one.cost, 4) for way, one in found.items()},
        )


@dataclass(slots=True)
class Adaptive:
    """The ways of all requests of a router."""

    pods: Pods
    objectives: WayObjectives = NO_OBJECTIVES
    speeds: Speeds = field(default_factory=Speeds)
    index: PrefixIndex = field(default_factory=PrefixIndex)
    _there: float = 1.0  # share of the expected cache that was there

    def choose(
        self, call: Call, parameter: Sequence[Pod], decode: Sequence[Pod], ways: Collection[Way]
    ) -> Choice | None:
        """The way of a request; None if no P pod can get it, or it has no way.

        Args:
            call: The request.
            parameter: The P pods that can get it and have a link to a D pod.
            decode: The D pods that can get it.
            ways: The ways that are allowed.
        """
        if not parameter or not decode:
            return None
        learning = not self.speeds.are_known
        chain = chain_of(call)
        known = self.index.known(chain, (*parameter, *decode))
        prompt = (chain.size or len(call.body)) / self.speeds.bytes_per_token
        of_parameter, of_decode = (self._places(pods, chain, prompt, known) for pods in (parameter, decode))
        allowed = {Way.SPLIT} if learning else ways
        answer, times = self.speeds.answer.at(0), self.speeds.times
        found = cheapest_first(answer, of_parameter, of_decode, times, ways=allowed, objectives=self.objectives)
        return Choice(found[0], found[1:], chain, known, prompt, learning) if found else None

    def _places(self, pods: Sequence[Pod], chain: Chain, prompt: float, known: Mapping[Pod, int]) -> list[Place]:
        """What pods would have to do for a request."""
        # Each router counts its own requests; the others have as many.
        routers, now = self.pods.routers, asyncio.get_running_loop().time()
        return [
            Place(
                pod,
                self._answers(pod),
                routers * pod.queue.ahead(now),
                self._uncached(chain, prompt, known[pod]),
                min(1.0, routers * pod.queue.work.share),
            )
            for pod in pods
        ]

    def _answers(self, pod: Pod) -> float:
        return self.pods.routers * pod.answers

    def _uncached(self, chain: Chain, prompt: float, known: int) -> float:
        """Prompt tokens that a pod has to compute: one in any case."""
        share = self._there * known / chain.size if chain.size else 0.0
        return max(1.0, prompt * (1 - share))

    @contextmanager
    def computing(self, choice: Choice, pod: Pod, *, ends_with_prompt: bool) -> Iterator[None]:
        """A pod computes the prompt from the beginning of the block on.

        If the block ends with the answer, the prompt counts for as long as predicted, and nothing is learned of it.
        """
        tokens, answers = self._uncached(choice.chain, choice.prompt, choice.known.get(pod, 0)), self._answers(pod)
        role, loop = pod.observed.role, asyncio.get_running_loop()
        began, took, seconds = loop.time(), 0.0, tokens * self.speeds.of(role).token
        pod.queue.begin(seconds, began)

        def computed() -> None:
            nonlocal took
            took = pod.queue.end(seconds, began, loop.time())

        with ExitStack() as counted:  # closed once, by the timer or at the end
            counted.callback(computed)
            if not ends_with_prompt:
                counted.callback(loop.call_later(choice.predicted.first_token, counted.close).cancel)
            yield
        self.index.add(choice.chain, pod)
        if ends_with_prompt:
            choice.beside = self._answers(pod)
            self.speeds.computed(role, tokens, answers, took)
        else:
            choice.beside, choice.whole_seconds = answers + 1, loop.time() - began

    @contextmanager
    def handing_over(self, choice: Choice, pod: Pod, *, ends_with_first: bool) -> Iterator[None]:
        """D gets the KV cache from the beginning of the block on, which ends with its first token or its answer."""
        loop, answers = asyncio.get_running_loop(), self._answers(pod)
        began = loop.time()
        ahead = self.pods.routers * pod.queue.ahead(began)
        yield
        self.index.add(choice.chain, pod)
        seconds = max(0.0, loop.time() - began - ahead)
        if ends_with_first:
            choice.beside = self._answers(pod)
            self.speeds.handed_over(self._handed_over(choice, pod), answers + 1, seconds)
        else:
            choice.beside, choice.whole_seconds = answers + 1, seconds

    def _handed_over(self, choice: Choice, pod: Pod) -> float:
        """Prompt tokens that a D pod gets from P."""
        return self._uncached(choice.chain, choice.prompt, choice.known.get(pod, 0))

    def ended(self, choice: Choice, pod: Pod, usage: Usage, seconds_per_token: float | None, content: str) -> None:
        """An answer is complete.

        Args:
            choice: The way of the request.
            pod: The pod that answered it.
            usage: What vLLM says of it.
            seconds_per_token: Between two tokens, as a mean; None if it was no stream.
            content: Its text; empty if the next turn does not begin with it.
        """
        role = pod.observed.role
        self.speeds.ended(choice.chain.size, usage.prompt, usage.answer)
        answers = (choice.beside + self._answers(pod)) / 2
        if seconds_per_token is not None:
            self.speeds.stepped(role, answers, seconds_per_token)
        elif choice.whole_seconds is not None and usage.answer > 0:
            if choice.is_alone:
                after_first = choice.whole_seconds - choice.predicted.first_token
                self.speeds.stepped_whole(role, answers, usage.answer - 1, after_first)
            else:
                tokens = self._handed_over(choice, pod)
                self.speeds.handed_over_whole(tokens, answers, usage.answer, choice.whole_seconds)
        if choice.is_alone and usage.prompt and usage.cached is not None and (known := choice.known.get(pod, 0)):
            there = min(1.0, usage.cached / usage.prompt * choice.chain.size / known)
            self._there += (there - self._there) * _FORGET
        if content:
            self.index.add(choice.chain.extended(of_answer(content)), pod)
