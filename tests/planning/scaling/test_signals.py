import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.planning.scaling.signals import PrefillWindow, prefill_load


def window(
    *, prefill_seconds: float = 0, finished: float = 0, before: float = 0, waiting: float = 0, running: float = 0
) -> PrefillWindow:
    return PrefillWindow(30, prefill_seconds, finished, before, waiting, running)


def test_idle_pods_have_no_load() -> None:
    assert prefill_load([window(), window()]) == 0
    assert prefill_load([]) == 0


def test_a_steady_pod_has_the_load_of_the_time_it_works() -> None:
    assert prefill_load([window(prefill_seconds=15, finished=60)]) == pytest.approx(0.5)


def test_work_that_arrives_counts_although_it_could_not_be_done_yet() -> None:
    # 0.5 s a request; the pod did 60 in 30 s, 60 more wait: two pods' work arrives, and 30 s of work wait.
    burst = window(prefill_seconds=30, finished=60, waiting=60)
    assert prefill_load([burst], drain_seconds=60) == pytest.approx(2 + 0.5)


def test_requests_prefilled_together_do_not_count_twice() -> None:
    assert prefill_load([window(prefill_seconds=90, finished=60)]) == pytest.approx(1)


def test_a_long_prompt_without_end_in_the_window_is_a_busy_pod() -> None:
    assert prefill_load([window(before=1, running=1), window()]) == pytest.approx(1)


def test_a_pod_seen_for_the_first_time_does_not_count() -> None:
    assert prefill_load([PrefillWindow(0, 0, 0, 0, 5, 1)]) == 0


_counts = st.integers(0, 500).map(float)
_windows = st.builds(
    PrefillWindow, st.just(30.0), st.floats(0, 200, allow_nan=False), _counts, _counts, _counts, _counts
)


@settings(deadline=None)
@given(st.lists(_windows, max_size=6), _counts)
def test_load_is_never_negative_and_grows_with_the_queue(windows: list[PrefillWindow], more: float) -> None:
    load = prefill_load(windows)
    assert load >= 0
    if windows:
        first = windows[0]
        longer = PrefillWindow(
            first.seconds,
            first.prefill_seconds,
            first.finished,
            first.present_before,
            first.waiting + more,
            first.running,
        )
        assert prefill_load([longer, *windows[1:]]) >= load
