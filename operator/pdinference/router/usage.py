"""What vLLM says of the tokens of an answer at its end.

Tests: tests/router/test_usage.py
"""

import re
from dataclasses import dataclass
from typing import Final

# A text cannot contain these bytes: its quotes are escaped.
_ANSWER: Final = re.compile(rb'"(?:completion|output)_tokens": ?([0-9]{1,9})')
_PROMPT: Final = re.compile(rb'"(?:prompt|input)_tokens": ?([0-9]{1,9})')
_CACHED: Final = re.compile(rb'"(?:cached_tokens|cache_read_input_tokens)": ?([0-9]{1,9})')
MAYBE_TOKENS: Final = b'_tokens":'
"""Is in each report."""
_LAST: Final = 2**16
"""Bytes at the end of an answer that have its report."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of an answer.

    Attributes:
        prompt: Prompt tokens; 0 if it does not say.
        answer: Tokens of the answer.
        cached: Prompt tokens that were in the pod's cache; None if it does not say (`--enable-prompt-tokens-details`).
    """

    prompt: int
    answer: int
    cached: int | None = None


def usage_in(text: bytes) -> Usage | None:
    """The last report in some events or in an answer; None without one."""
    if MAYBE_TOKENS not in (text := text[-_LAST:]) or not (answers := _ANSWER.findall(text)):
        return None
    prompts, cached = _PROMPT.findall(text), _CACHED.findall(text)
    return Usage(int(prompts[-1]) if prompts else 0, int(answers[-1]), int(cached[-1]) if cached else None)
