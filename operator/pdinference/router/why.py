"""Why a request went its way, as the router logs it and `pdinference chat --why` reads it.

Tests: tests/cli/test_chat.py, tests/router/test_adaptive.py
"""

from enum import StrEnum

import msgspec


class WayReason(StrEnum):
    """Why a request goes a way."""

    COST = "cost"
    """It costs least."""
    OBJECTIVES = "objectives"
    """It costs more than another one, and keeps more of `spec.objectives`."""
    LEARNING = "learning"
    """The router knows too little of its pods yet."""


class Why(msgspec.Struct, frozen=True):
    """What the router predicted.

    Attributes:
        way: The way, a `Way`.
        reason: Why this way: a `WayReason`.
        prompt_tokens: Its estimate.
        expected_cached_tokens: Those of them that should have been in the cache of the pod that computed the prompt.
        cached_tokens: Those that were, by what vLLM says; None if it does not say.
        predicted_first_token_seconds, predicted_token_seconds, costs: Of each way.
    """

    way: str
    reason: str
    prompt_tokens: int
    expected_cached_tokens: int
    cached_tokens: int | None
    predicted_first_token_seconds: dict[str, float]
    predicted_token_seconds: dict[str, float]
    costs: dict[str, float]
