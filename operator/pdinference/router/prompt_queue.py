"""The prompts that a pod has to compute, which it does one after another, by what was learned. Pure.

vLLM takes prompts in their order. So the next one begins when the one before it ends, and its time is known without
that of those before it.

Tests: tests/router/test_prompt_queue.py
"""

from dataclasses import dataclass, field

from pdinference.router.busy import Busy


@dataclass(slots=True)
class PromptQueue:
    """The prompts of a pod. All times are on the clock of the event loop.

    Attributes:
        work: Seconds that it should spend on prompts in all its recent time.
    """

    work: Busy = field(default_factory=Busy)
    _seconds: float = 0.0  # of the prompts that have not ended
    _free_at: float = 0.0  # when all of them should be computed
    _ended_at: float = 0.0  # when the last of those before them was

    def ahead(self, now: float) -> float:
        """Seconds until a prompt that comes now should begin."""
        return max(0.0, self._free_at - now) if self._seconds else 0.0

    def begin(self, seconds: float, now: float) -> None:
        """A prompt comes that should take so long."""
        self._free_at = now + self.ahead(now) + seconds
        self._seconds += seconds
        self.work.add(seconds)

    def end(self, seconds: float, began: float, now: float) -> float:
        """A prompt was computed. How long it took, without those before it.

        Args:
            seconds: How long it should take; the same number as for `begin`.
            began: When it came.
            now: The time.
        """
        took = now - max(began, self._ended_at)
        self._seconds = max(0.0, self._seconds - seconds)
        self._free_at, self._ended_at = now + self._seconds, now
        return took
