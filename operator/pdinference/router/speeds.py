"""How long prompts, steps and hand-overs take, learned from the router's own requests. Pure.

A role for which little was observed is taken for the other one: P and D mostly run on the same product. What was
observed of a role counts less with each observation of the other one. So a role that looked slow once is tried again.

Tests: tests/router/test_speeds.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.defaults import BATCHED_TOKENS_OF_BOTH
from pdinference.router.line import ENOUGH, KEPT, Line
from pdinference.router.ways import MISSED_STEPS, RoleTimes, WayTimes

_LONG_KEPT: Final = 0.998
"""Weight of the steps before, with each one: a steady load shows few numbers of answers, so others are remembered."""
_MANY_STEPS: Final = 32
"""Of an answer that is no stream: a first token that came later than predicted is no step that took long."""
_BYTES_PER_TOKEN: Final = 4.0
_GUESSED_TOKENS: Final = 500.0
"""As many tokens of prompts as the guess above counts as."""


def _prompts() -> dict[Role, Line]:
    parameter = Line(from_origin=True)
    return {Role.PARAMETER: parameter, Role.DECODE: Line(parameter)}


def _steps() -> dict[Role, Line]:
    decode = Line(kept=_LONG_KEPT)
    return {Role.PARAMETER: Line(decode, kept=_LONG_KEPT), Role.DECODE: decode}


@dataclass(slots=True)
class Speeds:
    """What the router has learned of its pods. They are all alike in a role.

    Attributes:
        step_tokens: `max-num-batched-tokens` of each role, where that is not the default.
        prompts: Of each role: seconds of a prompt, by the tokens that the pod had to compute.
        steps: Of each role: seconds of a step, by the answers under way.
        hand_overs: Seconds from the end of a prompt on P to the first token of D, by its tokens.
        answer: Tokens of an answer.
    """

    step_tokens: Mapping[Role, float] = field(default_factory=dict)
    prompts: Mapping[Role, Line] = field(default_factory=_prompts)
    steps: Mapping[Role, Line] = field(default_factory=_steps)
    hand_overs: Line = field(default_factory=Line)
    answer: Line = field(default_factory=Line)
    _bytes: float = _BYTES_PER_TOKEN * _GUESSED_TOKENS
    _tokens: float = _GUESSED_TOKENS
    _whole: int = 0

    @property
    def bytes_per_token(self) -> float:
        """Of prompts: that of all their bytes and tokens, so that a short prompt counts as little as it has."""
        return self._bytes / self._tokens

    @property
    def are_known(self) -> bool:
        """Whether enough requests have gone through P and D.

        Hand-overs stay unknown without streams, and count as nothing: D's next steps are all that the split waits for.
        """
        lines = self.prompts[Role.PARAMETER], self.steps[Role.DECODE]
        return all(line.is_known for line in lines) and (self.hand_overs.is_known or self._whole >= ENOUGH)

    @property
    def times(self) -> WayTimes:
        """How long things take, by the lines."""
        parameter, decode = self.of(Role.PARAMETER), self.of(Role.DECODE)
        hand_over, moved_token = self.hand_overs.fitted()
        return WayTimes(
            parameter,
            decode,
            hand_over=hand_over,
            moved_token=moved_token,
            # KV cache that arrives delays a step by about one more (benchmarks/results/advise.md).
            join=decode.step,
        )

    def of(self, role: Role) -> RoleTimes:
        """The times of a role."""
        request, token = self.prompts[role].fitted()
        step, answer = self.steps[role].fitted()
        return RoleTimes(request, token, step, answer, self.step_tokens.get(role, BATCHED_TOKENS_OF_BOTH))

    def step(self, role: Role, answers: float) -> float:
        """Seconds of a step with a token of each of so many answers."""
        return self.steps[role].at(answers)

    def computed(self, role: Role, tokens: float, answers: float, seconds: float) -> None:
        """A pod has computed a prompt.

        Args:
            role: Its role.
            tokens: Prompt tokens that it had to compute.
            answers: Answers that were under way when the prompt came: it waits for the rest of their step.
            seconds: Until its first token, from the request or from the end of the prompt before it on.
        """
        waits = self.step(role, answers) if answers else 0.0
        _observe(self.prompts, role, tokens, max(0.0, seconds - waits))

    def stepped(self, role: Role, answers: float, seconds: float) -> None:
        """An answer is complete, which a pod generated beside others.

        Args:
            role: Its role.
            answers: Answers that were under way, with this one.
            seconds: Between two of its tokens, as a mean.
        """
        _observe(self.steps, role, answers, seconds)

    def handed_over(self, tokens: float, answers: float, seconds: float) -> None:
        """D has given the first token of a prompt that P computed.

        Args:
            tokens: Those that D had not.
            answers: Answers under way at D, with this one.
            seconds: From the end of the prompt on P to the first token.
        """
        steps = MISSED_STEPS * self.step(Role.DECODE, answers)
        self.hand_overs.observe(tokens, max(0.0, seconds - steps))

    def handed_over_whole(self, tokens: float, answers: float, answer: int, seconds: float) -> None:
        """D has given a whole answer, which was no stream, to a prompt that P computed.

        An answer of one token is its first one. Of a long one nearly all are steps. The first token of others does not
        show: it is small beside what steps differ by.

        Args:
            tokens: Prompt tokens that D had not.
            answers: Answers that were under way at D, with this one.
            answer: Tokens of the answer.
            seconds: From the end of the prompt on P to the end of the answer.
        """
        self._whole += 1
        if answer == 1:
            self.handed_over(tokens, answers, seconds)
        else:
            self.stepped_whole(Role.DECODE, answers, answer - 1 + MISSED_STEPS, seconds - self.hand_overs.at(tokens))

    def stepped_whole(self, role: Role, answers: float, steps: float, seconds: float) -> None:
        """Steps of an answer that was no stream, if they are enough to show how long one takes.

        Args:
            role: The role of the pod.
            answers: Answers that were under way, with this one.
            steps: How many.
            seconds: Of all of them, as far as known.
        """
        if steps >= _MANY_STEPS and seconds >= 0:
            self.stepped(role, answers, seconds / steps)

    def ended(self, size: int, prompt: int, answer: int) -> None:
        """An answer is complete.

        Args:
            size: Bytes of its prompt; 0 if they are not known.
            prompt: Its prompt tokens.
            answer: Tokens of the answer.
        """
        if prompt > 0 and answer > 0:
            self.answer.observe(0, answer)
            if size:
                self._bytes = self._bytes * KEPT + size
                self._tokens = self._tokens * KEPT + prompt


def _observe(lines: Mapping[Role, Line], role: Role, units: float, seconds: float) -> None:
    lines[role].observe(units, seconds)
    for other in lines.keys() - {role}:
        lines[other].forget()
