"""Synthetic workloads: rate, pace, classes, shared prefixes."""

import statistics
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference_advise.advice.workload.bounds import WorkloadError
from pdinference_advise.advice.workload.distribution import Uniform
from pdinference_advise.advice.workload.summary import summarise
from pdinference_advise.advice.workload.synthetic import (
    RepeatedShare,
    RequestClass,
    SharedPrefixes,
    Synthetic,
    parse_classes,
    parse_prefixes,
)
from pdinference_advise.simulation.arrivals import PREFIX_BLOCK

RANDOM = Random(1)  # noqa: S311 - no secret
CHAT = (RequestClass(Uniform(500, 1500), Uniform(10, 90)),)


def gaps(workload: Synthetic, seconds: float) -> list[float]:
    times = [arrival.at for arrival in workload.trace(seconds).arrivals]
    return [after - before for before, after in pairwise(times)]


@pytest.mark.parametrize("burstiness", [0, 0.5, 1, 3])
def test_the_rate_and_the_variation_of_the_pace_are_those_given(burstiness: float) -> None:
    found = gaps(Synthetic(20, CHAT, burstiness), 3600)
    assert statistics.mean(found) == pytest.approx(1 / 20, rel=0.05)
    assert statistics.pstdev(found) * 20 == pytest.approx(burstiness, rel=0.05, abs=1e-9)


@given(
    st.floats(0.01, 50),
    st.floats(0, 10),
    st.floats(0.1, 60),
    st.integers(),
    st.sampled_from([None, RepeatedShare(0.5)]),
)
def test_requests_are_in_order_within_the_time_and_at_least_one(
    rate: float, burstiness: float, seconds: float, seed: int, prefixes: RepeatedShare | None
) -> None:
    trace = Synthetic(rate, CHAT, burstiness, prefixes).trace(seconds, seed=seed)
    times = [arrival.at for arrival in trace.arrivals]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < trace.seconds == seconds
    assert all(len(arrival.prefix) <= arrival.prompt // PREFIX_BLOCK for arrival in trace.arrivals)


def test_a_seed_repeats_a_workload_and_another_one_does_not() -> None:
    workload = Synthetic(5, CHAT)
    assert workload.trace(100) == workload.trace(100, seed=0)
    assert workload.trace(100).arrivals != workload.trace(100, seed=1).arrivals


def test_lengths_do_not_depend_on_the_rate() -> None:
    slow, fast = Synthetic(2, CHAT).trace(100), Synthetic(4, CHAT, 2).trace(100)
    lengths = [[(arrival.prompt, arrival.answer) for arrival in trace.arrivals[:100]] for trace in (slow, fast)]
    assert lengths[0] == lengths[1]


def test_classes_have_their_shares_and_lengths() -> None:
    classes = parse_classes(["chat:75%:100:10", "rag:25%:8000..16000:300~600"], "--class")
    trace = Synthetic(50, classes).trace(400)
    assert summarise(trace).kinds["chat"] / len(trace.arrivals) == pytest.approx(0.75, abs=0.02)
    assert {arrival.prompt for arrival in trace.arrivals if arrival.kind == "chat"} == {100}
    assert all(8000 <= arrival.prompt <= 16000 for arrival in trace.arrivals if arrival.kind == "rag")


def test_a_share_of_requests_begins_with_one_of_the_prefixes() -> None:
    trace = Synthetic(20, CHAT, prefixes=parse_prefixes("1200/80%/3", "--shared-prefix")).trace(500)
    begins = {arrival.prefix for arrival in trace.arrivals if arrival.prompt >= 1200 and arrival.prefix}
    assert begins == {(0, 1), (2, 3), (4, 5)}
    long = [arrival for arrival in trace.arrivals if arrival.prompt >= 1200]
    assert sum(bool(arrival.prefix) for arrival in long) / len(long) == pytest.approx(0.8, abs=0.03)


def test_a_prompt_shorter_than_its_prefix_begins_with_a_part_of_it() -> None:
    assert SharedPrefixes(2048, 100).draw(1100, RANDOM) == (0, 1)
    assert SharedPrefixes(2048, 100).draw(511, RANDOM) == ()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_repeated_share_of_the_prompts_is_in_common(share: float) -> None:
    classes = (RequestClass(Uniform(1000, 20_000), Uniform(1, 1)),)
    assert summarise(Synthetic(20, classes, prefixes=RepeatedShare(share)).trace(500)).repeated == pytest.approx(
        share, abs=0.03
    )


@pytest.mark.parametrize(
    ("text", "prefixes"),
    [
        ("2048/80%", SharedPrefixes(2048, 80)),
        (" 512 / 12.5% / 10", SharedPrefixes(512, 12.5, 10)),
        ("10000000/100%/1", SharedPrefixes(10_000_000, 100)),
    ],
)
def test_the_text_of_shared_prefixes(text: str, prefixes: SharedPrefixes) -> None:
    assert parse_prefixes(text, "--shared-prefix") == prefixes


_FORM = (
    "is no shared prefix. Write TOKENS/SHARE, as in 2048/80% for 80 % of requests that begin with the same 2048 tokens"
    ", or TOKENS/SHARE/NUMBER, as in 2048/80%/10 for ten such beginnings."
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2048", f'--shared-prefix: "2048" {_FORM}'),
        ("2k/80%", f'--shared-prefix: "2k/80%" {_FORM}'),
        ("1/2%/3/4", f'--shared-prefix: "1/2%/3/4" {_FORM}'),
        (
            "2048/0.8",
            '--shared-prefix: "0.8" is no share of requests. Write a percentage above 0 and up to 100, as in 80%.',
        ),
        (
            "300/80%",
            (
                "--shared-prefix: a prefix of 300 tokens is not between 512 and 10,000,000. Prefixes count in blocks "
                "of 512 tokens; leave a shorter one out."
            ),
        ),
        ("2048/80%/0", "--shared-prefix: 0 prefixes are not between 1 and 100,000."),
        (
            "10000000/80%/1000",
            "--shared-prefix: 10000000/80%/1000 is more than 512,000,000 tokens of prefixes in all.",
        ),
    ],
)
def test_wrong_shared_prefixes_are_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse_prefixes(text, "--shared-prefix")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            ["chat:80%:500"],
            (
                '--class: "chat:80%:500" is no class of requests. Write NAME:SHARE:PROMPT:ANSWER, as in '
                "chat:80%:500..1500:200~600. In place of a mix of lengths, write several classes."
            ),
        ),
        (["a b:100%:1:1"], '--class: "a b" is no name of a class. Write a word, such as chat.'),
        (["chat:100%:1..0:1"], "--class chat, prompt tokens: 0 tokens are not between 1 and 10,000,000."),
        (["chat:50%:1:1", "chat:50%:1:1"], "--class: the class chat is there twice."),
        (["chat:50%:1:1", "rag:40%:1:1"], "--class: the shares add up to 90 %. Make them 100 % together."),
    ],
)
def test_wrong_classes_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse_classes(texts, "--class")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("rate", "burstiness", "seconds", "message"),
    [
        (0, 1, 60, "--rate: 0 requests/s is not above 0 and at most 100,000."),
        (float("nan"), 1, 60, "--rate: nan requests/s is not above 0 and at most 100,000."),
        (1e6, 1, 60, "--rate: 1e+06 requests/s is not above 0 and at most 100,000."),
        (1, -1, 60, "--burstiness: -1 is not between 0 (an even pace) and 10; 1 is a Poisson process."),
        (
            1000,
            1,
            86_400,
            "86400 s at 1000 requests/s cannot be simulated: at most 1,000,000 requests and 366 days are possible.",
        ),
        (1, 1, 0, "0 s at 1 requests/s cannot be simulated: at most 1,000,000 requests and 366 days are possible."),
    ],
)
def test_numbers_out_of_bounds_are_refused(rate: float, burstiness: float, seconds: float, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        Synthetic(rate, CHAT, burstiness).trace(seconds)
    assert str(error.value) == message


def test_the_source_says_how_the_requests_come() -> None:
    sources = [Synthetic(2.5, CHAT, burstiness).trace(10).source for burstiness in (0, 1, 2)]
    assert sources == [
        "2.5 requests/s at an even pace",
        "2.5 requests/s as a Poisson process",
        "2.5 requests/s with burstiness 2",
    ]
