"""Prompts that no number of GPUs makes fast enough."""

import math

import pytest

from pdinference_advise.advice.long_prompts import note
from pdinference_advise.advice.objectives import Objective, RequestObjectives
from pdinference_advise.simulation.arrivals import Arrival
from tests.advise.simulation.llama import STEPS


def _load(*prompts: int, kind: str = "") -> list[Arrival]:
    return [Arrival(0, prompt, 10, kind=kind) for prompt in prompts]


def _objectives(ttft: float, percentile: float = 90) -> RequestObjectives:
    return RequestObjectives(percentile, Objective(ttft=ttft))


def test_the_length_is_the_one_that_an_idle_engine_computes_in_time() -> None:
    (found,) = note(_load(1000, 100_000), _objectives(0.5), [STEPS])
    tokens = int(found.partition("more than ")[2].partition(" ")[0].replace(",", ""))
    assert STEPS.prefill(tokens, tokens**2 / 2, 0, 1) == pytest.approx(0.5, rel=0.001)
    assert found.startswith("50.0% of the prompts have")
    assert "Raise --ttft" in found


def test_nothing_is_said_of_as_many_as_the_percentile_allows() -> None:
    assert not list(note(_load(*[1000] * 9, 100_000), _objectives(0.5), [STEPS]))
    assert list(note(_load(*[1000] * 8, 100_000), _objectives(0.5), [STEPS]))


def test_nothing_is_said_without_an_objective() -> None:
    assert not list(note(_load(100_000), _objectives(math.inf), [STEPS]))


def test_each_class_has_its_objective() -> None:
    load = [*_load(50_000, kind="papers"), *_load(50_000, kind="chat")]
    objectives = RequestObjectives(90, Objective(), (("papers", Objective(ttft=60)), ("chat", Objective(ttft=0.3))))
    (found,) = note(load, objectives, [STEPS])
    assert "of the prompts of chat have" in found


def test_an_objective_below_every_first_token_is_called_so() -> None:
    (found,) = note(_load(1000, 8000), _objectives(0.001), [STEPS])
    assert found.startswith("No prompt has its first token within 1 ms")
    assert "Raise --ttft." in found
