"""A request on its way through engines.

Tests: tests/advise/simulation/test_engine.py
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Job:
    """A request in one engine.

    Attributes:
        prefill: Prompt tokens that the engine has to compute yet.
        context: Tokens of which it has KV cache.
        left: Tokens that it has to generate yet.
        first: Called with the time of the first token.
        done: Called with the time of the last one.
        pull: Begins to pull KV cache, and calls back when it is there; None where the engine computes the prompt.
        came: When the engine got it.
        scheduled: When the engine began to compute its prompt.
        started: Whether its first token has come.
        kept: Whether its KV cache stays until somebody has pulled it.
    """

    prefill: int
    context: int
    left: int
    first: Callable[[float], None]
    done: Callable[[float], None]
    pull: Callable[[Callable[[], None]], None] | None = None
    came: float = 0.0
    scheduled: float = 0.0
    started: bool = False
    kept: bool = False
