"""Requests as they come: what every source of a workload gives, and what the simulation takes.

Tests: tests/advise/advice/workload/test_traces.py, tests/advise/advice/workload/test_trace.py
"""

from dataclasses import dataclass
from typing import Final

PREFIX_BLOCK: Final = 512
"""Tokens for each entry of `Arrival.prefix`, as in Mooncake's traces."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request.

    Attributes:
        at: Seconds since the beginning of the load.
        prompt: Prompt tokens, at least 1.
        answer: Tokens to generate, at least 1.
        prefix: Identities of the prompt's beginning, one for each whole block of `PREFIX_BLOCK` tokens. Requests whose
            first n entries are equal have their first n blocks in common. Empty: it has no beginning in common.
        kind: The class of request, for objectives of their own; empty without classes.
        after: As `prefix`, of the prompt with its answer, with which the next turn of a conversation begins.
    """

    at: float
    prompt: int
    answer: int
    prefix: tuple[int, ...] = ()
    kind: str = ""
    after: tuple[int, ...] = ()
