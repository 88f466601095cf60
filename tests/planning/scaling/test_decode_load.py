from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.planning.scaling.decode_load import BUSY_POD_CAP, DecodeWindow, decode_load

IDLE = 0.0044


def window(
    kv_usage: float = 0, token_seconds: float = 0, *, generated: float = 0, finished: float = 0, waiting: float = 0
) -> DecodeWindow:
    return DecodeWindow(30, kv_usage, token_seconds, generated, finished, finished * 500, waiting)


def test_an_idle_pod_has_no_load_and_a_full_one_has_all() -> None:
    assert window(0, IDLE).load(IDLE) == 0
    assert window(1, 0.037).load(IDLE) == 1
    assert window(0.9, 0.034, waiting=1).load(IDLE) == 1


def test_load_is_proportional_to_throughput_where_utilisation_is_not() -> None:
    slowing = 0.0325  # seconds a token more with a full cache: 8B model, H200

    def at(usage: float) -> tuple[float, float]:
        pace = IDLE + slowing * usage
        return usage / pace, window(usage, pace).load(IDLE)

    full, _ = at(1)
    for usage in (0.1, 0.3, 0.8):
        throughput, load = at(usage)
        assert load == pytest.approx(throughput / full)
    assert at(0.3)[1] == pytest.approx(0.78, abs=0.02)
    assert at(0.8)[1] == pytest.approx(0.97, abs=0.01)


def test_where_the_cache_does_not_slow_the_pod_down_load_is_utilisation() -> None:
    assert window(0.4, IDLE).load(IDLE) == pytest.approx(0.4)


def test_without_knowing_an_idle_pod_load_is_utilisation() -> None:
    assert window(0.4, 0.02).load(None) == pytest.approx(0.4)
    assert window(0.4, 0).load(IDLE) == pytest.approx(0.4)


def test_requests_that_reach_p_count_before_d_has_them() -> None:
    busy = window(0.3, 0.01415, generated=15_000, finished=30)  # one request a second, of 500 tokens
    steady = decode_load([busy], idle=IDLE, arrivals=1)
    assert steady == pytest.approx(busy.load(IDLE))
    assert decode_load([busy], idle=IDLE, arrivals=4) == pytest.approx(4 * steady)


def test_what_waits_in_either_role_counts_as_work_to_be_done_in_time() -> None:
    full = window(1, 0.037, generated=30_000, finished=60, waiting=60)  # half a second of the pod for each request
    load = decode_load([full], idle=IDLE, arrivals=2, waiting_for_prefill=60, drain_seconds=60)
    assert load == pytest.approx(1 + 120 * 0.5 / 60)


def test_pods_that_are_full_for_a_while_stay_and_ask_for_no_more() -> None:
    """They catch up: half of what they can do arrives."""
    full = window(1, 0.037, generated=30_000, finished=60)
    assert decode_load([full, full], idle=IDLE, arrivals=2) == pytest.approx(2 * BUSY_POD_CAP)


def test_full_pods_ask_for_more_where_as_much_arrives_as_they_can_do() -> None:
    """Closed-loop clients: arrivals equal completions, and an HPA ignores differences of 10 %."""
    full = window(1, 0.037, generated=30_000, finished=60, waiting=5)
    assert decode_load([full, full], idle=IDLE, arrivals=4) > 2 * 0.9 * 1.1


def test_where_no_answer_ends_full_pods_count_in_full() -> None:
    full = window(1, 0.037, generated=30_000, waiting=5)
    assert decode_load([full, full], idle=IDLE, arrivals=0.1) == 2


def test_without_reports_of_p_full_pods_have_full_load() -> None:
    full = window(1, 0.037, generated=30_000, finished=60, waiting=5)
    assert decode_load([full, full], idle=IDLE, arrivals=None) == 2


def test_a_new_pod_takes_its_part_of_the_work_and_does_not_add_to_it() -> None:
    """Half a pod's work for half a minute: the last five seconds it was all with the new one."""
    old = window(0.5 * 25 / 30, generated=12_500, finished=25)
    new = replace(window(0.5, generated=2500, finished=5), seconds=5.0)
    assert decode_load([old, new], idle=None, arrivals=1) == pytest.approx(0.5)
    assert decode_load([replace(old, finished=0), replace(new, finished=0)], idle=None, arrivals=1) == pytest.approx(
        0.5
    )


_windows = st.builds(
    DecodeWindow,
    st.sampled_from((0.0, 30.0)),
    st.floats(0, 1),
    st.floats(0, 0.2),
    st.floats(0, 1e6),
    st.integers(0, 1000).map(float),
    st.floats(0, 1e6),
    st.integers(0, 1000).map(float),
)


@settings(deadline=None)
@given(st.lists(_windows, max_size=5), st.floats(0, 100), st.none() | st.floats(1e-4, 0.1))
def test_load_keeps_the_pods_that_work_and_grows_with_arrivals(
    pods: list[DecodeWindow], arrivals: float, idle: float | None
) -> None:
    load = decode_load(pods, idle=idle, arrivals=arrivals)
    assert load >= sum(min(BUSY_POD_CAP, pod.load(idle)) for pod in pods if pod.seconds) - 1e-9
    assert decode_load(pods, idle=idle, arrivals=arrivals + 1) >= load
