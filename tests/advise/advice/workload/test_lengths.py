"""The text of lengths: what it means, and what is said about a wrong one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pdinference_advise.advice.workload.bounds import MOST_TOKENS, WorkloadError
from pdinference_advise.advice.workload.distribution import Distribution, LogNormal, Mix, Quantiles, Uniform
from pdinference_advise.advice.workload.lengths import EXAMPLES, parse

TOKENS = st.integers(1, MOST_TOKENS)
PAIRS = st.tuples(TOKENS, TOKENS).map(sorted)
PERCENTILES = st.dictionaries(st.integers(1, 999).map(lambda n: n / 10), TOKENS, min_size=2, max_size=6)


def quantiles(found: dict[float, int]) -> str:
    lengths = sorted(found.values())
    return ",".join(f"p{percent:g}={tokens}" for percent, tokens in zip(sorted(found), lengths, strict=True))


SINGLE = st.one_of(
    TOKENS.map(str),
    PAIRS.map(lambda pair: f"{pair[0]}..{pair[1]}"),
    PAIRS.map(lambda pair: f"{pair[0]}~{pair[1]}"),
    PERCENTILES.map(quantiles),
)
LENGTHS = st.one_of(
    SINGLE,
    st.tuples(st.integers(1, 99), SINGLE, SINGLE).map(lambda mix: f"{mix[0]}%:{mix[1]}+{100 - mix[0]}%:{mix[2]}"),
)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("1000", Uniform(1000, 1000)),
        (" 500..1500 ", Uniform(500, 1500)),
        ("800~3000", LogNormal(800, 3000)),
        ("min=10,p50=100,max=1000", Quantiles(((0.0, 10.0), (0.5, 100.0), (1.0, 1000.0)))),
        ("p25=100,p75=10000", Quantiles(((0.0, 10.0), (0.25, 100.0), (0.75, 10000.0), (1.0, 100000.0)))),
        ("80%:500..1500 + 20%:800~3000", Mix(((80.0, Uniform(500, 1500)), (20.0, LogNormal(800, 3000))))),
        ("33.3%:1+33.3%:2+33.4%:3", Mix(((33.3, Uniform(1, 1)), (33.3, Uniform(2, 2)), (33.4, Uniform(3, 3))))),
    ],
)
def test_what_a_text_means(text: str, meaning: Distribution) -> None:
    found = parse(text, "--prompt-tokens")
    if isinstance(meaning, Quantiles):
        assert isinstance(found, Quantiles)
        assert [share for share, _ in found.points] == [share for share, _ in meaning.points]
        assert [tokens for _, tokens in found.points] == pytest.approx([tokens for _, tokens in meaning.points])
    else:
        assert found == meaning


@given(LENGTHS)
@example("p0.1=1,p0.2=3")  # continued to the largest length, these two grow beyond every number
def test_the_text_of_a_distribution_makes_the_same_one(text: str) -> None:
    found = parse(text, "x")
    again = parse(str(found), "x")
    assert str(again) == str(found)
    assert (again.least, again.most) == (found.least, found.most)
    assert again.mean == pytest.approx(found.mean, rel=0.01, abs=1)


def test_every_example_of_the_messages_is_valid() -> None:
    texts = [part.strip().removeprefix("or a mix such as ") for part in EXAMPLES.replace("), ", ")#").split("#")]
    texts = [piece.split(" ")[0] for part in texts for piece in ([part] if "=" in part else part.split(", "))]
    assert texts == ["1000", "500..1500", "800~3000", "p50=800,p90=3000,p99=9000", "80%:500..1500+20%:800~3000"]
    for text in texts:
        parse(text, "--prompt-tokens")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f'--prompt-tokens: "" is no whole number of tokens. Lengths are {EXAMPLES}.'),
        ("1k", f'--prompt-tokens: "1k" is no whole number of tokens. Lengths are {EXAMPLES}.'),
        ("-5", f'--prompt-tokens: "-5" is no whole number of tokens. Lengths are {EXAMPLES}.'),
        ("nan", f'--prompt-tokens: "nan" is no whole number of tokens. Lengths are {EXAMPLES}.'),
        ("1000.5", f'--prompt-tokens: "1000.5" is no whole number of tokens. Lengths are {EXAMPLES}.'),
        ("٣", f'--prompt-tokens: "٣" is no whole number of tokens. Lengths are {EXAMPLES}.'),
        ("0", "--prompt-tokens: 0 tokens are not between 1 and 10,000,000."),
        ("1000000000", "--prompt-tokens: 1,000,000,000 tokens are not between 1 and 10,000,000."),
        ("1500..500", "--prompt-tokens: the range 1500..500 ends before it begins. Write 500..1500."),
        (
            "4000~1000",
            "--prompt-tokens: 4000~1000 has a 90th percentile below its median. Write MEDIAN~P90, as in 800~3000.",
        ),
        ("p50=800", "--prompt-tokens needs two percentiles or more, as in p50=800,p90=3000."),
        ("p50=800,p50=900", "--prompt-tokens has p50 twice."),
        ("p50=800,p90=300", "--prompt-tokens: percentile 90 (300) is below percentile 50 (800)."),
        (
            "p100=5,p50=3",
            '--prompt-tokens: "p100" is no percentile. Write p50, p90, p99.9, min or max, as in p50=800,p90=3000.',
        ),
        (
            "mean=5,p50=3",
            '--prompt-tokens: "mean" is no percentile. Write p50, p90, p99.9, min or max, as in p50=800,p90=3000.',
        ),
        ("80%:100+10%:200", "--prompt-tokens: the shares add up to 90 %. Make them 100 % together."),
        (
            "80%+20%:5",
            '--prompt-tokens: "80%" is no part of a mix. Write SHARE:LENGTHS, as in 80%:500..1500+20%:8000.',
        ),
        (
            "80:5+20%:5",
            '--prompt-tokens: "80" is no share of requests. Write a percentage above 0 and up to 100, as in 80%.',
        ),
        (
            "0%:5+100%:5",
            '--prompt-tokens: "0%" is no share of requests. Write a percentage above 0 and up to 100, as in 80%.',
        ),
        ("+".join(["5%:1"] * 20), "--prompt-tokens has more than 16 parts."),
        ("1" * 1001, "--prompt-tokens has more than 1000 characters."),
    ],
)
def test_a_wrong_text_is_refused_with_what_to_do(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        parse(text, "--prompt-tokens")
    assert str(error.value) == message


@given(st.text(alphabet="0123456789.~p=%:+,maxin \n\x1b", max_size=40))
def test_any_text_makes_lengths_within_the_bounds_or_a_printable_message(text: str) -> None:
    try:
        found = parse(text, "--prompt-tokens")
        outcome = str(found)
        assert 1 <= found.least <= found.most <= MOST_TOKENS
    except WorkloadError as error:
        outcome = str(error)
    assert outcome.isprintable()
