"""The steps of a pod's engine, as its metrics count them. /health does not reach the engine."""

import math
from dataclasses import dataclass
from typing import Final

from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.loadmetrics.scraping.text_format import name_of, sample
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.router.pod import Pod
from pdinference.router.transfers import fetch_metrics

_STEPS: Final = b"vllm:iteration_tokens_total_count"
"""vllm/v1/metrics/loggers.py."""


@dataclass(slots=True)
class Steps:
    """For how long an engine has taken no step, as readings of its counter show.

    A reading that fails shows nothing: the ones before and after it do.

    Attributes:
        count: Its steps at the last reading; None before the first.
        since: When they were first read to be as many.
        until: When they were last read to be as many.
        tried_at: When a reading last began.
    """

    count: float | None = None
    since: float = 0.0
    until: float = 0.0
    tried_at: float = -math.inf

    def read(self, count: float | None, began: float, ended: float) -> None:
        """Note a reading.

        Args:
            count: The steps; None if they could not be read.
            began: When the reading began.
            ended: When it ended.
        """
        self.tried_at = began
        if count is None:
            return
        if count != self.count:
            self.count, self.since = count, ended
        self.until = began

    def without(self, since: float = -math.inf) -> float:
        """Seconds without a step, from a time on.

        Args:
            since: The time.
        """
        return self.until - max(self.since, since)


async def read_steps(pod: Pod, share: Share) -> float | None:
    """The steps of all engines of a server; None if it does not report them."""
    found: list[float] = []

    def take(line: bytes) -> None:
        if name_of(line) == _STEPS:
            found.append(sample(line).value)

    try:
        await fetch_metrics(pod, take, share)
    except UnreadableError:
        return None
    return sum(found) if found else None
