"""What the router's pods can write. Their time is a constant in the simulation, which holds up to a part of that."""

import math
from collections.abc import Iterable
from typing import Final

TOKENS_A_SECOND: Final = 25_600
"""Chunks of answers that one router pod writes: 39 us of CPU each, in one process (benchmarks/README.md)."""
_BUSY: Final = 0.7
"""Up to this share of it, waiting for the router is short beside its constant time."""


def note(replicas: int, tokens: float) -> Iterable[str]:
    """What to say if the router's pods are too busy for a constant time.

    Args:
        replicas: Router pods.
        tokens: Tokens of answers a second.
    """
    pods = max(1, replicas)
    busy = tokens / (pods * TOKENS_A_SECOND)
    if busy > _BUSY:
        needed = math.ceil(tokens / (_BUSY * TOKENS_A_SECOND))
        what = "1 router pod" if pods == 1 else f"{pods} router pods"
        yield (
            f"{tokens:,.0f} answer tokens/s are {busy:.0%} of what {what} can write "
            f"({TOKENS_A_SECOND:,}/s each, measured). The simulation leaves out that requests wait for the router. Set "
            f"spec.router.replicas to {needed} or more."
        )
