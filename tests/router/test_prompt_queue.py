"""The prompts that a pod has to compute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.router.prompt_queue import PromptQueue


def test_what_is_ahead_shrinks_with_time_and_is_over_when_all_have_ended() -> None:
    queue = PromptQueue()
    assert queue.ahead(10.0) == 0
    queue.begin(1.0, 10.0)
    queue.begin(2.0, 10.5)
    assert queue.ahead(10.5) == pytest.approx(2.5)
    queue.end(1.0, 10.0, 11.5)  # half a second later than it should
    assert queue.ahead(11.5) == pytest.approx(2.0)
    queue.end(2.0, 10.5, 12.0)  # and this one sooner
    assert queue.ahead(12.0) == 0


def test_a_prompt_that_takes_longer_than_it_should_is_not_waited_for() -> None:
    queue = PromptQueue()
    queue.begin(1.0, 0.0)
    assert queue.ahead(5.0) == 0
    queue.begin(1.0, 5.0)
    assert queue.ahead(5.0) == pytest.approx(1.0)


def test_a_prompt_takes_its_time_from_the_end_of_the_one_before_it_on() -> None:
    queue = PromptQueue()
    queue.begin(1.0, 0.0)
    queue.begin(1.0, 0.2)
    assert queue.end(1.0, 0.0, 1.5) == pytest.approx(1.5)
    assert queue.end(1.0, 0.2, 2.75) == pytest.approx(1.25)
    queue.begin(1.0, 10.0)
    assert queue.end(1.0, 10.0, 11.0) == pytest.approx(1.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.001, 5), st.floats(0, 20)), max_size=20))
def test_nothing_is_ahead_of_a_queue_that_is_empty_again(prompts: list[tuple[float, float, float]]) -> None:
    """In whatever order prompts end."""
    queue = PromptQueue()
    events = [(at, 0, seconds, at) for at, seconds, _ in prompts] + [(at + after, 1, s, at) for at, s, after in prompts]
    for now, ends, seconds, began in sorted(events):
        if ends:
            assert queue.end(seconds, began, now) >= 0
        else:
            queue.begin(seconds, now)
        assert queue.ahead(now) >= 0
    assert queue.ahead(max((now for now, *_ in events), default=0.0)) == pytest.approx(0, abs=1e-9)
