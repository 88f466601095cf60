"""Tokens that no number of GPUs makes fast enough."""

import pytest

from pdinference_advise.advice.objectives import Objective, RequestObjectives
from pdinference_advise.advice.slow_tokens import note
from tests.advise.simulation.llama import STEPS

ALONE = STEPS.decode_step(1, 1000)


def test_an_objective_below_the_shortest_step_is_called_so() -> None:
    (found,) = note([""], RequestObjectives(99, Objective(tpot=0.9 * ALONE)), [STEPS], 1000)
    assert f"needs {1000 * ALONE:.1f} ms for each. More GPUs do not change that. Raise --tpot." in found


@pytest.mark.parametrize("objective", [Objective(tpot=1.1 * ALONE), Objective(ttft=0.001)])
def test_nothing_is_said_of_an_objective_that_one_request_keeps(objective: Objective) -> None:
    assert not list(note([""], RequestObjectives(99, objective), [STEPS], 1000))


def test_each_class_has_its_objective() -> None:
    objectives = RequestObjectives(99, Objective(), (("chat", Objective(tpot=0.5 * ALONE)),))
    (found,) = note(["chat", "papers"], objectives, [STEPS], 1000)
    assert found.startswith("No token of chat takes ")
