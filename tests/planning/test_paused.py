"""The status of a paused resource."""

from dataclasses import replace

import pytest

from pdinference.api.v1alpha1.conditions import BY_NAME
from pdinference.memory import NO_VERDICT
from pdinference.planning.status import left_alone_status
from pdinference.planning.transitions import transitions
from tests.planning.rollouts import PULL, SECOND, with_decode
from tests.planning.statuses import NOW, SERVING, built, conditions


@pytest.mark.parametrize(
    ("withheld", "truth", "others"), [(False, "False", {}), (True, "True", {"Reconciling": ("True", "Paused")})]
)
def test_a_pause_changes_no_condition_but_progressing(withheld: bool, truth: str, others: dict[str, object]) -> None:
    before = built(SERVING)
    status = built(replace(SERVING, paused=True, withheld=withheld), previous=before)
    found = dict(conditions(status))
    progressing = found.pop("Progressing")
    assert (progressing.status, progressing.reason) == (truth, "Paused")
    assert {name: (c.status, c.reason) for name, c in found.items()} == {
        name: (c.status, c.reason) for name, c in conditions(before).items() if name != "Progressing"
    } | others
    assert not list(transitions(before, status)), "no Event: nothing is wrong"
    assert status.last_progress_time is None


def test_a_roll_out_that_is_stuck_is_reported_with_the_pause() -> None:
    inputs = with_decode(SECOND, PULL)
    stuck, paused = (conditions(built(one))["Stalled"] for one in (inputs, replace(inputs, paused=True)))
    assert (paused.reason, paused.message.partition(" Paused: ")[0]) == (stuck.reason, stuck.message)


def test_the_reasons_of_a_resource_without_a_spec_in_effect_are_in_the_table() -> None:
    status = left_alone_status("paused", NO_VERDICT, generation=4, previous=built(SERVING), now=NOW, reason="Paused")
    named = {(c.type, c.status) for c in status.conditions if c.reason == "Paused"}
    assert ("Ready", "Unknown") in named
    for name, truth in named:
        assert "Paused" in BY_NAME[name].reasons[truth]
