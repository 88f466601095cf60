"""Loads for which the router's time is no constant."""

import pytest

from pdinference_advise.advice.router_load import note
from tests.advise.advice.questions import answer, llama, question


def test_a_load_that_one_router_pod_writes_with_ease_is_not_mentioned() -> None:
    assert not list(note(1, 5_000))
    assert not list(note(1, 17_900))
    assert not list(note(2, 20_000))


@pytest.mark.parametrize(("replicas", "tokens", "needed"), [(1, 20_000, 2), (0, 20_000, 2), (2, 60_000, 4)])
def test_a_load_that_fills_the_router_is_mentioned_with_the_pods_it_needs(
    replicas: int, tokens: float, needed: int
) -> None:
    (found,) = note(replicas, tokens)
    assert f"spec.router.replicas to {needed} or more" in found
    assert not list(note(needed, tokens))


def _noted(replicas: int) -> list[str]:
    document = llama()
    document["spec"]["router"] = {"replicas": replicas}
    asked = question(("1xH200",), rate=100, answer="250", document=document)
    return [each for each in answer(asked).notes if "router" in each]


def test_an_answer_mentions_it_for_the_pods_of_the_file() -> None:
    (found,) = _noted(1)
    assert found.startswith("25,083 answer tokens/s are 98% of what 1 router pod can write")
    assert not _noted(2)
