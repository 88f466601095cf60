"""Prompts of canaries, with tokenizers of different kinds."""

import re
from collections import Counter
from collections.abc import Callable

import pytest

from pdinference.router.canary_prompts import lengths, prompts

PART = 128


def ids(pieces: list[str]) -> list[int]:
    return [hash(piece) for piece in pieces]


def of_bytes(text: str) -> list[int]:
    return list(text.encode())


def of_words(text: str) -> list[int]:
    """The space belongs to the word, as in Llama 3."""
    return ids(re.findall(r" ?\w+|[^\w ]", text))


def of_words_and_spaces(text: str) -> list[int]:
    return ids(re.findall(r" |\w+|[^\w ]", text))


@pytest.mark.parametrize("tokenizer", [of_bytes, of_words, of_words_and_spaces])
async def test_the_next_token_tells_the_prompts_apart(tokenizer: Callable[[str], list[int]]) -> None:
    answered = []

    async def tokenize(text: str, _opens: bool) -> list[int]:
        if text.startswith(" The password of "):
            answered.append(tokenizer(text))
        return tokenizer(text)

    first, second = await prompts(PART, tokenize)
    assert (len(first), len(second)) == lengths(PART) == (448, 224)
    following = [
        next(answer[at:] for at in range(len(answer), 0, -1) if first[-at:] == answer[:at]) for answer in answered
    ]
    assert len(following) == 2
    assert following[0][0] != following[1][0]


async def test_each_part_of_each_prompt_has_words_of_its_own() -> None:
    """So a part that is missing or another one's changes what the prompt has."""

    async def tokenize(text: str, _opens: bool) -> list[int]:
        return of_bytes(text)

    parts = [
        Counter(re.findall(r"\w+", bytes(prompt[at : at + PART]).decode()))
        for prompt in await prompts(PART, tokenize)
        for at in range(0, len(prompt), PART)
    ]
    assert len(parts) == 6
    often = [{word for word, number in part.items() if number > 1} for part in parts]
    assert all(often)
    assert len(set.union(*often)) == sum(map(len, often))


async def test_the_first_prompt_asks_for_a_later_part_and_the_second_one_for_its_first() -> None:
    """A model that copies the answer notices hardly any other part."""

    async def tokenize(text: str, _opens: bool) -> list[int]:
        return of_bytes(text)

    places = set()
    for _ in range(20):
        found = [bytes(prompt).index(b"The password of ") // PART for prompt in await prompts(PART, tokenize)]
        assert found[1] == 0
        places.add(found[0])
    assert places == {1, 2}
