from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.planning.scaling.prefill_load import PrefillWindow, arrival_rate, prefill_load

NOTHING = PrefillWindow(
    seconds=30, prefill_seconds=0, finished=0, arrived=0, waiting=0, running=0, recent_seconds=10, recent_arrived=0
)
STEADY = replace(NOTHING, prefill_seconds=15, finished=60, arrived=60, recent_arrived=20)
"""Half a second a prompt, two of them a second."""
NEW = PrefillWindow(
    seconds=5, prefill_seconds=2.5, finished=5, arrived=5, waiting=0, running=0, recent_seconds=5, recent_arrived=5
)
"""There for five seconds: one a second."""


def test_idle_pods_have_no_load() -> None:
    assert prefill_load([NOTHING, NOTHING]) == 0
    assert prefill_load([]) == 0


def test_a_steady_pod_has_the_load_of_the_time_it_works() -> None:
    assert prefill_load([STEADY]) == pytest.approx(0.5)
    assert prefill_load([replace(STEADY, prefill_seconds=6)]) == pytest.approx(0.2)


def test_work_that_arrives_counts_although_it_could_not_be_done_yet() -> None:
    # 0.5 s a request; the pod did 60 in 30 s, 60 more wait: two pods' work arrives, and 30 s of work wait.
    burst = replace(STEADY, prefill_seconds=30, arrived=120, recent_arrived=40, waiting=60)
    assert prefill_load([burst], drain_seconds=60) == pytest.approx(2 + 0.5)


def test_requests_prefilled_together_do_not_count_twice() -> None:
    assert prefill_load([replace(STEADY, prefill_seconds=90)]) == pytest.approx(2 * 0.5)


def test_a_long_prompt_without_end_in_the_window_is_a_busy_pod() -> None:
    assert prefill_load([replace(NOTHING, running=1), NOTHING]) == pytest.approx(1)


def test_a_long_answer_of_a_pod_that_answers_is_no_prompt() -> None:
    """vLLM counts the prompt of a request when its answer ends."""
    answering = replace(NOTHING, running=1)
    assert prefill_load([answering] * 4, answers=True) == 0
    assert prefill_load([answering, STEADY], answers=True) == pytest.approx(0.5)


def test_a_pod_seen_for_the_first_time_does_not_count() -> None:
    first = PrefillWindow(0, 0, 0, 0, waiting=5, running=1, recent_seconds=0, recent_arrived=0)
    assert prefill_load([first]) == 0
    assert arrival_rate([first]) == 0


class TestArrivals:
    def test_they_are_those_of_the_window(self) -> None:
        assert arrival_rate([STEADY, STEADY]) == pytest.approx(4)

    def test_a_new_pod_takes_its_part_of_them_and_does_not_add_to_them(self) -> None:
        """Two a second came for half a minute: for 25 s to the one, then one a second to each."""
        old = replace(STEADY, arrived=55, recent_arrived=15)
        assert arrival_rate([old, NEW]) == pytest.approx(2)
        assert prefill_load([replace(old, finished=55, prefill_seconds=27.5), NEW]) == pytest.approx(1)

    def test_a_burst_is_seen_when_it_begins(self) -> None:
        """40 in 20 seconds, then 80 in 10: over the whole window these would be four a second."""
        assert arrival_rate([replace(STEADY, arrived=120, recent_arrived=80)]) == pytest.approx(8)

    def test_a_little_more_than_before_is_an_accident(self) -> None:
        accident = replace(STEADY, arrived=75, recent_arrived=35)
        assert arrival_rate([accident]) == pytest.approx(75 / 30)

    def test_a_pod_with_a_short_history_shows_no_burst(self) -> None:
        watched = replace(STEADY, seconds=15, arrived=100, recent_arrived=99)
        assert arrival_rate([watched]) == pytest.approx(100 / 15)


_counts = st.integers(0, 500).map(float)


@st.composite
def windows(draw: st.DrawFn) -> PrefillWindow:
    arrived = draw(_counts)
    return PrefillWindow(
        seconds=30,
        prefill_seconds=draw(st.floats(0, 200)),
        finished=draw(_counts),
        arrived=arrived,
        waiting=draw(_counts),
        running=draw(_counts),
        recent_seconds=10,
        recent_arrived=draw(st.floats(0, arrived)),
    )


@settings(deadline=None)
@given(st.lists(windows(), min_size=1, max_size=6), _counts)
def test_load_is_never_negative_and_grows_with_the_queue(pods: list[PrefillWindow], more: float) -> None:
    load = prefill_load(pods)
    assert load >= 0
    assert prefill_load([replace(pods[0], waiting=pods[0].waiting + more), *pods[1:]]) >= load


@given(st.lists(windows(), min_size=1, max_size=6))
def test_what_came_lately_only_adds(pods: list[PrefillWindow]) -> None:
    assert arrival_rate(pods) >= sum(pod.arrived for pod in pods) / 30 * (1 - 1e-9)
