"""Why a request went its way, from the router's log (`router.disaggregation: Adaptive`).

Tests: tests/cli/test_chat.py
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from pdinference.cli.requests.seconds import time_text
from pdinference.router.why import WayReason, Why

WAY_WORDS: Final[Mapping[str, str]] = {"split": "P and D", "decode": "D alone", "parameter": "P alone"}

_REASONS: Final[Mapping[str, str]] = {
    WayReason.COST: "which costs least",
    WayReason.OBJECTIVES: "which keeps more of spec.objectives than cheaper ones",
    WayReason.LEARNING: "because the router has seen too few requests yet",
}


def why_lines(why: Why) -> Iterator[str]:
    """The reasons, for people."""
    name = WAY_WORDS.get(why.way, why.way)
    yield f"  way: {name}, {_REASONS.get(why.reason, why.reason)}"
    if why.reason == WayReason.LEARNING:
        return
    for way, cost in sorted(why.costs.items(), key=lambda one: one[1]):
        first, token = (
            time_text(of.get(way, 0.0)) for of in (why.predicted_first_token_seconds, why.predicted_token_seconds)
        )
        yield f"    {WAY_WORDS.get(way, way):<9} {time_text(cost):>9}: first token after {first}, others every {token}"
    found = "" if why.cached_tokens is None else f", {why.cached_tokens:,} were"
    yield (
        f"    Of about {why.prompt_tokens:,} prompt tokens {why.expected_cached_tokens:,} were expected in the "
        f"pod's cache{found}."
    )


def why_in(fields: Mapping[str, Any]) -> Why | None:
    """The reasons in a line of the log; None without any."""
    try:
        return msgspec.convert(fields.get("why"), Why)
    except msgspec.ValidationError:
        return None
