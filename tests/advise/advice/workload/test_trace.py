"""Traces: faster and slower, a part, the busiest part, what they are like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference_advise.advice.workload.bounds import WorkloadError
from pdinference_advise.advice.workload.summary import Lengths, summarise
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.simulation.arrivals import Arrival


def trace(*times: float, tokens: int = 10) -> Trace:
    return Trace.observed(tuple(Arrival(at, tokens, tokens) for at in times), "load.csv")


TRACES = st.lists(
    st.tuples(st.floats(0, 5000), st.integers(1, 10_000), st.integers(1, 1000)), min_size=1, max_size=40
).map(lambda rows: Trace.observed(tuple(Arrival(*row) for row in sorted(rows)), "load.csv"))


def test_a_trace_begins_with_its_first_request_and_ends_a_mean_gap_after_the_last() -> None:
    found = trace(100, 102, 106)
    assert [arrival.at for arrival in found.arrivals] == [0, 2, 6]
    assert (found.seconds, found.rate) == (9, 3 / 9)
    assert trace(7).seconds == trace(7, 7, 7).seconds == 1


@given(TRACES, st.floats(0.01, 100))
def test_a_faster_trace_has_the_same_requests_in_less_time(found: Trace, factor: float) -> None:
    faster = found.faster(factor)
    assert faster.rate == pytest.approx(found.rate * factor)
    assert [arrival.prompt for arrival in faster.arrivals] == [arrival.prompt for arrival in found.arrivals]
    assert all(arrival.at < faster.seconds for arrival in faster.arrivals)
    assert found.at_rate(7.5).rate == pytest.approx(7.5)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), 1e9, 1e-12])
def test_a_rate_out_of_bounds_is_refused(factor: float) -> None:
    with pytest.raises(WorkloadError) as error:
        trace(0, 1).at_rate(factor)
    assert str(error.value) == (
        f"{factor:g} times the rate of load.csv (1 requests/s) is out of bounds: the rate must be at most 100,000 "
        "requests/s, and the load at most 366 days long."
    )


def test_a_part_begins_at_zero_and_is_noted() -> None:
    found = trace(*range(0, 1200, 10)).part(300, 600)
    assert (found.seconds, len(found.arrivals), found.arrivals[0].at) == (600, 60, 0)
    assert found.notes == ("Only 10 min from 5 min on are used, of 20 min.",)


def test_a_part_without_requests_is_refused() -> None:
    with pytest.raises(WorkloadError) as error:
        trace(0, 5000).part(10, 60)
    assert str(error.value) == "load.csv has no requests from 10 s to 70 s. It is 10,000 s long."


def test_the_busiest_part_is_the_one_with_the_most_tokens() -> None:
    quiet = [Arrival(float(at), 10, 10) for at in range(0, 600, 10)]
    busy = [Arrival(300 + at / 10, 100, 10) for at in range(100)]
    found = Trace.observed(tuple(sorted((*quiet, *busy), key=lambda arrival: arrival.at)), "load.csv").busiest(10)
    assert summarise(found).prompt.p50 == 100
    assert len(found.arrivals) == 101


@given(TRACES, st.floats(0.5, 6000))
def test_no_part_is_busier_than_the_busiest(found: Trace, seconds: float) -> None:
    def tokens(part: Trace) -> int:
        return sum(arrival.prompt + arrival.answer for arrival in part.arrivals)

    busiest = found.busiest(seconds)
    assert busiest.seconds == pytest.approx(min(found.seconds, max(seconds, 1)), rel=1e-6)
    assert all(0 <= arrival.at < busiest.seconds for arrival in busiest.arrivals)
    for arrival in found.arrivals:
        if arrival.at + seconds <= found.seconds:
            assert tokens(busiest) >= tokens(found.part(arrival.at, seconds))


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_busiest_part_without_a_length_is_refused(seconds: float) -> None:
    with pytest.raises(WorkloadError) as error:
        trace(0, 1).busiest(seconds)
    assert str(error.value) == f"A part of {seconds:g} s has no requests. Give a length above 0."


def test_a_summary_has_rates_percentiles_and_what_prompts_have_in_common() -> None:
    first = [Arrival(float(at), 1000 + at, 100, (1, 2), "chat") for at in range(60)]
    second = [Arrival(60 + at / 2, 600, 10, (1,), "rag") for at in range(120)]
    found = summarise(Trace(tuple(first + second), 120, "load.csv"))
    assert (found.requests, found.rate, found.peak_rate) == (180, 1.5, 2)
    assert found.prompt == Lengths(mean=(60 * 1029.5 + 120 * 600) / 180, p50=600, p90=1041, p99=1058, most=1059)
    assert found.repeated == (59 * 2 + 120) * 512 / (60 * 1029.5 + 120 * 600)
    assert found.kinds == {"chat": 60, "rag": 120}
    assert list(found.lines()) == [
        "180 requests in 2 min: 1.5/s, peak 2/s",
        "Prompt tokens: mean 743, p50 600, p90 1,041, p99 1,058, longest 1,059",
        "Answer tokens: mean 40, p50 10, p90 100, p99 100, longest 100",
        "91% of the prompt tokens are the beginning of an earlier prompt, too",
        "Classes: chat 60, rag 120",
    ]


def test_only_a_common_beginning_is_repeated() -> None:
    same_end = (Arrival(0, 1024, 1, (1, 2)), Arrival(1, 1024, 1, (3, 2)), Arrival(2, 1024, 1, (1, 4)))
    assert summarise(Trace(same_end, 3, "x")).repeated == 512 / 3072


@given(TRACES)
def test_a_summary_is_in_order(found: Trace) -> None:
    summary = summarise(found)
    assert summary.peak_rate >= summary.rate or found.seconds > 60
    assert summary.prompt.p50 <= summary.prompt.p90 <= summary.prompt.p99 <= summary.prompt.most
    assert all(line.isprintable() for line in summary.lines())
