"""What vLLM says of the tokens of an answer at its end.

Tests: tests/router/test_usage.py
"""

import re
from dataclasses import dataclass
from typing import Final

# A text cannot contain these bytes: its quotes are escaped.
_ANSWER: Final = re.compile(rb'"(?:completion|output)_tokens": ?([0-9]{1,9})')
_PROMPT: Final = re.compile(rb'"(?:prompt|input)_tokens": ?([0-9]{1,9})')
_CACHED: Final = re.compile(rb'"cached_tokens": ?([0-9]{1,9})')
_READ: Final = re.compile(rb'"cache_read_input_tokens": ?([0-9]{1,9})')
_CREATED: Final = re.compile(rb'"cache_creation_input_tokens": ?([0-9]{1,9})')
"""Anthropic's API counts these beside the other prompt tokens (vllm/entrypoints/anthropic/serving.py)."""
MAYBE_TOKENS: Final = b'_tokens":'
"""Is in each report."""
_BEGINNINGS: Final = (b'"usage":{', b'"usage": {')
_LONGEST: Final = 2**12
"""Bytes of a report. What follows it may be long: ids of prompt tokens, or a text of the client's."""


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

    @property
    def computed(self) -> int:
        """Tokens that were not in a cache."""
        return max(0, self.prompt - (self.cached or 0)) + self.answer


def usage_of(body: bytes) -> Usage | None:
    """The report of a whole answer, which may have prompt tokens alone, as embeddings have; None without one."""
    if (found := usage_in(body)) is not None:
        return found
    prompt = _last(_PROMPT, _report(body))
    return None if prompt is None else Usage(prompt, 0)


def usage_in(text: bytes) -> Usage | None:
    """The last report in some events or in an answer; None without one."""
    if (answer := _last(_ANSWER, text := _report(text))) is None:
        return None
    prompt, read = _last(_PROMPT, text) or 0, _last(_READ, text)
    beside = (read or 0) + (_last(_CREATED, text) or 0)
    return Usage(prompt + beside, answer, _last(_CACHED, text) if read is None else read)


def _report(text: bytes) -> bytes:
    """The last report in a text, and some of what follows it; empty without one."""
    start = max(text.rfind(beginning) for beginning in _BEGINNINGS)
    return b"" if start < 0 else text[start : start + _LONGEST]


def _last(number: re.Pattern[bytes], text: bytes) -> int | None:
    found = number.findall(text)
    return int(found[-1]) if found else None
