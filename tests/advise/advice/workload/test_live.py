"""The load of a running resource: from the metrics of its routers to a workload."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.loadmetrics.scraping.exposition import Histogram
from pdinference.loadmetrics.scraping.http_answer import LONGEST_BODY
from pdinference_advise.advice.workload.bounds import MOST_TOKENS, WorkloadError
from pdinference_advise.advice.workload.live import LiveLoad, RouterReading, load, quantiles, read_router
from pdinference_advise.advice.workload.synthetic import RepeatedShare

CHAT = "/v1/chat/completions"
_BUCKETS = (100, 200, 500, 1000)


def histogram(name: str, *lengths: float) -> str:
    buckets = [(f"{bound}.0", sum(length <= bound for length in lengths)) for bound in _BUCKETS]
    lines = [f'{name}_bucket{{le="{bound}"}} {count}.0' for bound, count in (*buckets, ("+Inf", len(lengths)))]
    return "\n".join((*lines, f"{name}_sum {sum(lengths)}", f"{name}_count {len(lengths)}.0"))


def requests(outcome: str, number: float, path: str = CHAT) -> str:
    labels = f'client="",outcome="{outcome}",path="{path}",status="200"'
    return f"pdinference_router_requests_total{{{labels}}} {number}"


def text(*lines: str, prompts: tuple[float, ...] = (), answers: tuple[float, ...] = ()) -> bytes:
    prompt, answer = (
        histogram(name, *lengths) if lengths else ""
        for name, lengths in (
            ("pdinference_router_prompt_tokens", prompts),
            ("pdinference_router_answer_tokens", answers),
        )
    )
    return "\n".join(("# TYPE x counter", *lines, prompt, answer, "other_metric 1", "")).encode()


def reading(*lines: str, prompts: tuple[float, ...] = (), answers: tuple[float, ...] = ()) -> RouterReading:
    return read_router(text(*lines, prompts=prompts, answers=answers), "router-0")


SHORT, LONG = (150.0,) * 250, (800.0,) * 250


def test_the_rate_is_that_of_all_routers_and_lengths_are_of_one() -> None:
    before = {
        "a": reading(requests("answered", 100), prompts=SHORT, answers=SHORT),
        "b": reading(requests("answered", 1000), prompts=SHORT, answers=SHORT),
    }
    after = {
        "a": reading(requests("answered", 400), prompts=SHORT + LONG, answers=SHORT + SHORT),
        "b": reading(requests("answered", 1300), prompts=SHORT + LONG, answers=SHORT + SHORT),
    }
    found = load(before, after, 60)
    assert found.workload.rate == 10
    (only,) = found.workload.classes
    assert [only.prompt.mean, only.answer.mean] == pytest.approx([800, 150])
    assert only.prompt.least >= 500
    assert found.notes == (
        "The rate is of 600 requests that ended in the last 60 s.",
        "Lengths are of 250 requests that D finished in the last 60 s, in buckets of a histogram.",
    )


def test_with_few_requests_the_lengths_since_the_start_count() -> None:
    before = {"a": reading(requests("answered", 250), prompts=SHORT, answers=SHORT)}
    after = {"a": reading(requests("answered", 253), prompts=(*SHORT, 900), answers=(*SHORT, 900))}
    found = load(before, after, 30)
    assert found.workload.rate == 0.1
    assert found.workload.classes[0].prompt.mean == pytest.approx((250 * 150 + 900) / 251)
    assert (
        found.notes[1]
        == "Lengths are of 251 requests that D finished since the router started, in buckets of a histogram."
    )


def test_only_requests_that_generate_and_were_served_count() -> None:
    lines = [
        requests("answered", 30),
        requests("cut", 6),
        requests("cancelled", 24, "/v1/responses"),
        requests("malformed", 1000),
        requests("answered", 1000, "/v1/embeddings"),
        requests("limited", 30),
        requests("unavailable", 10),
    ]
    found = load({}, {"a": reading(*lines, prompts=SHORT, answers=SHORT)}, 60)
    assert found.workload.rate == 1
    assert found.notes[-1] == (
        "40 requests were turned away (limits, no pod), and are not in the load: the demand is higher."
    )


def test_what_d_had_in_its_cache_is_a_common_beginning() -> None:
    def tokens(cached: int, other: int) -> list[str]:
        name = "pdinference_router_kv_prompt_tokens_total"
        return [f'{name}{{source="cache"}} {cached}', f'{name}{{source="parameter"}} {other}']

    before = {"a": reading(requests("answered", 0), *tokens(900, 100))}
    after = {"a": reading(requests("answered", 300), *tokens(1200, 800), prompts=SHORT, answers=SHORT)}
    found = load(before, after, 60)
    assert found.workload.prefixes == RepeatedShare(0.3)
    assert found.notes[-1] == (
        "30% of the prompt tokens were in D's prefix cache; this share is taken as one common beginning."
    )


def test_a_router_that_started_again_counts_from_zero() -> None:
    before = {"a": reading(requests("answered", 5000), prompts=SHORT + LONG, answers=SHORT + LONG)}
    after = {"a": reading(requests("answered", 300), prompts=SHORT, answers=LONG)}
    assert load(before, after, 60).workload.rate == 5


def test_a_load_makes_a_trace_with_its_lengths() -> None:
    found = load({}, {"a": reading(requests("answered", 1200), prompts=SHORT + LONG, answers=SHORT)}, 60)
    arrivals = found.workload.trace(600).arrivals
    assert sum(arrival.prompt for arrival in arrivals) / len(arrivals) == pytest.approx(475, rel=0.03)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (
            reading(prompts=SHORT, answers=SHORT),
            (
                "No request ended in the 60 s between two readings of the router. Measure under load or for longer, or "
                "give --rate, --prompt-tokens and --answer-tokens."
            ),
        ),
        (
            reading(requests("answered", 10)),
            (
                "The router does not report lengths of requests (pdinference_router_prompt_tokens): no request "
                "has ended since it started, its image is older, or it cannot read the metrics of D. Give "
                "--prompt-tokens and --answer-tokens."
            ),
        ),
    ],
)
def test_a_load_that_is_not_known_is_refused(after: RouterReading, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        load({}, {"a": after}, 60)
    assert str(error.value) == message


def test_no_router_is_no_load() -> None:
    with pytest.raises(WorkloadError, match=r"^No request ended in the 60 s"):
        load({}, {}, 60)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x" * (LONGEST_BODY + 1), "The metrics of router pod r are longer than 4,194,304 bytes."),
        (
            b'pdinference_router_requests_total{path="} 5',
            (
                "The metrics of router pod r cannot be read: not Prometheus' text format: "
                "b'pdinference_router_requests_total{path=\"} 5'."
            ),
        ),
        (
            b"pdinference_router_prompt_tokens_count 5\n" * 5000,
            "The metrics of router pod r have more than 4,096 series.",
        ),
    ],
)
def test_metrics_that_cannot_be_read_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        read_router(content, "r")
    assert str(error.value) == message


@given(
    st.lists(st.tuples(st.sampled_from(["1.0", "50", "+Inf", "1e+06", "NaN", "-1", "x"]), st.floats()), max_size=12),
    st.floats(),
    st.floats(),
)
def test_any_numbers_make_a_load_within_the_bounds_or_are_refused(
    buckets: list[tuple[str, float]], total: float, count: float
) -> None:
    lines = [
        line
        for name in ("pdinference_router_prompt_tokens", "pdinference_router_answer_tokens")
        for line in (
            *(f'{name}_bucket{{le="{bound}"}} {number}' for bound, number in buckets),
            f"{name}_sum {total}",
            f"{name}_count {count}",
        )
    ]
    try:
        found = load({}, {"a": reading(requests("answered", 60), *lines)}, 60)
    except WorkloadError:
        return
    assert isinstance(found, LiveLoad)
    arrivals = found.workload.trace(20).arrivals
    assert all(1 <= arrival.prompt <= MOST_TOKENS for arrival in arrivals)


HISTOGRAMS = st.lists(st.integers(0, 500), min_size=4, max_size=4).filter(any)


@given(HISTOGRAMS, st.integers())
def test_lengths_of_a_histogram_have_its_buckets_and_its_mean(numbers: list[int], seed: int) -> None:
    bounds, random = (10.0, 100.0, 1000.0, float("inf")), Random(seed)  # noqa: S311 - no secret
    cumulative = [float(sum(numbers[: n + 1])) for n in range(4)]
    middle = (7.0, 40.0, 400.0, 1400.0)
    total = sum(number * length for number, length in zip(numbers, middle, strict=True))
    found = quantiles(Histogram(tuple(zip(bounds, cumulative, strict=True)), total, cumulative[-1]))
    assert found.mean == pytest.approx(total / cumulative[-1], rel=0.01, abs=1)
    assert found.least <= found.draw(random) <= found.most
    assert found.points[0][0] == 0
    assert found.points[-1][0] == 1


@pytest.mark.parametrize("buckets", [(), ((10.0, 0.0), (float("inf"), 0.0))])
def test_an_empty_histogram_has_no_lengths(buckets: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(WorkloadError, match=r"^The histogram of lengths is empty\.$"):
        quantiles(Histogram(buckets, 5.0, 5.0))
