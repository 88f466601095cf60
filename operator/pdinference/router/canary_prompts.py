"""Two prompts that were never sent before. They differ in every part, and so do the first tokens of their answers.

A part names a word, and the end asks for it. Language models copy it from there, so the answer depends on the KV cache
of that part (induction; Olsson et al., 2022), and hardly on that of others. The first prompt asks for a later part, the
second one for its first part.

Each part repeats words that no other part of either prompt has. So a part that is missing, or has the KV cache of
another one, changes the mean of the prompt, by which models with random weights answer. The shorter the prompt, the
more does it, so the second prompt is as short as it can be (ADR 0021).
"""

import math
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Final

_PARTS: Final = (3.5, 1.75)
"""Parts of each prompt. The last block is not full, as in most prompts."""
_WORDS: Final = (
    *("amber", "basil", "cedar", "delta", "ember", "fable", "grove", "hazel", "ivory", "jolly", "kayak", "lemon"),
    *("maple", "noble", "ocean", "pearl", "quiet", "river", "sugar", "tiger", "umber", "vivid", "water", "zebra"),
)
"""They begin differently, so their tokens differ early, if not in the first one: that may be a space."""
_WORDS_AT_A_TIME: Final = 100
_MOST_PIECES: Final = 100

Tokenize = Callable[[str, bool], Awaitable[list[int]]]
"""Ids of a text's tokens; with those that begin a prompt, or without."""


class NoPromptError(Exception):
    """The tokenizer makes too few tokens of text."""


def lengths(part: int) -> tuple[int, int]:
    """Tokens of each prompt, the longer one first.

    Args:
        part: Tokens of a part: a block at least.
    """
    longer, shorter = (int(parts * part) for parts in _PARTS)
    return longer, shorter


async def prompts(part: int, tokenize: Tokenize) -> tuple[list[int], list[int]]:
    """The ids of both prompts.

    Raises:
        NoPromptError: The tokenizer makes too few tokens of text.
    """
    name, *words = random.sample(_WORDS, len(_WORDS))
    longer, shorter = (math.ceil(parts) for parts in _PARTS)
    ours = words[: longer + 1], words[longer + 1 : longer + shorter + 2]
    asked = random.randrange(1, longer - 1), 0  # noqa: S311 - no secret
    secrets = [each[at] for each, at in zip(ours, asked, strict=True)]
    # Up to the first token in which the answers differ.
    answered = [await tokenize(f" The password of {name} is {secret}", False) for secret in secrets]
    question = [token for token, _ in takewhile(lambda pair: pair[0] == pair[1], zip(*answered, strict=False))]
    first, second = [
        (await _parts(part, name, each, at, tokenize))[: size - len(question)] + question
        for each, at, size in zip(ours, asked, lengths(part), strict=True)
    ]
    return first, second


async def _parts(part: int, name: str, words: Sequence[str], asked: int, tokenize: Tokenize) -> list[int]:
    """Tokens of all parts. The first one is of two words in random order, so that no prompt is sent twice."""
    *own, second = words
    found: list[int] = []
    for number, word in enumerate(own):
        begin = ". " if number else ""
        text = f"{begin}The password of {name} is {word}. " if number == asked else ""
        choice = (word,) if number else (word, second)
        found += (await _at_least(part, text, choice, tokenize, opens=not number))[:part]
    return found


async def _at_least(number: int, text: str, choice: Sequence[str], tokenize: Tokenize, *, opens: bool) -> list[int]:
    """Tokens of a text, and of random words after it."""
    found: list[int] = []
    for piece in range(_MOST_PIECES):
        words = " ".join(random.choices(choice, k=_WORDS_AT_A_TIME))  # noqa: S311 - no secret
        found += await tokenize(f"{text}{words}" if not piece else f" {words}", opens and not piece)
        if len(found) >= number:
            return found
    raise NoPromptError(f"{_MOST_PIECES * _WORDS_AT_A_TIME} words have fewer than {number} tokens")
