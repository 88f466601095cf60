"""`pdinference bench`: a bounded load through a port-forward, to a router that streams."""

import asyncio
import json

import pytest

from pdinference.cli.requests.load import percentiles
from tests.cli.conftest import Served


async def test_the_load_is_announced_bounded_and_measured(served: Served) -> None:
    """Without answers that wait for each other, each request could be over before the next one is sent."""
    served.router.together = asyncio.Barrier(3)
    found = await served.cluster.run(
        "bench", "llama", "--requests", "9", "--concurrency", "3", "--prompt-tokens", "20", "--answer-tokens", "4"
    )
    assert found.exit_code == 0, found.output
    assert found.stderr.startswith(
        "Sends 9 requests, at most 3 at a time, to the model llama of team-a/llama through router-0: about 180 prompt "
        "tokens and 36 answer tokens in all.\n"
    )
    first, header, *rows = found.stdout.splitlines()
    assert first.startswith("9 answers in ")
    assert header.split() == ["MILLISECONDS", "p50", "p90", "p99"]
    titles = ["time to first token", "time per output token", "gap between tokens", "whole answer"]
    assert [row.split("  ")[0] for row in rows] == titles
    assert len(served.router.bodies) == 9
    assert served.router.most_at_once == 3
    assert {(body["max_tokens"], body["ignore_eos"]) for body in served.router.bodies} == {(4, True)}
    prompts = [body["prompt"].split() for body in served.router.bodies]
    assert {len(prompt) for prompt in prompts} == {20}
    assert len({prompt[0] for prompt in prompts}) == 9, "a prefix cache would know them"


async def test_on_a_terminal_lines_end_between_words(served: Served) -> None:
    lines = (await served.cluster.run_on_terminal(80, "bench", "--requests", "3")).splitlines()
    assert lines[:2] == [
        "Sends 3 requests, at most 4 at a time, to the model llama of team-a/llama",
        "through router-0: about 768 prompt tokens and 192 answer tokens in all.",
    ]
    served.router.refusal = (503, "No pod is ready.")
    lines = (await served.cluster.run_on_terminal(80, "bench", "--requests", "3")).splitlines()
    assert lines[-2:] == [
        "3 without answer: The router answers 503: No pod is ready. `kubectl pdi status`",
        "says what is not ready.",
    ]


async def test_a_rate_spreads_the_requests(served: Served) -> None:
    found = await served.cluster.run("bench", "--requests", "4", "--rate", "20", "-o", "json")
    assert "at most 4 at a time, 20 a second," in found.stderr
    measured = json.loads(found.stdout)
    assert measured["seconds"] >= 3 / 20
    assert (measured["answers"], measured["promptTokens"], measured["answerTokens"]) == (4, 48, 16)
    assert set(measured["latencySeconds"]) == {"ttft", "tpot", "gap", "total"}


async def test_a_stall_within_an_answer_is_seen_in_the_gaps(served: Served) -> None:
    served.router.words = ["a"] * 60
    served.router.stall = 0.5
    found = await served.cluster.run("bench", "--requests", "1", "-o", "json")
    latencies = json.loads(found.stdout)["latencySeconds"]
    assert latencies["tpot"]["p99"] < 0.25
    assert latencies["gap"]["p99"] >= 0.4
    assert latencies["gap"]["p50"] < 0.25


async def test_requests_without_an_answer_are_counted_by_reason(served: Served) -> None:
    served.router.refusal = (503, "No pod is ready.")
    found = await served.cluster.run("bench", "--requests", "3")
    assert found.exit_code == 1
    assert "0 answers in " in found.stdout
    assert "3 without answer: The router answers 503: No pod is ready." in found.stderr


async def test_after_its_time_no_request_is_sent(served: Served) -> None:
    found = await served.cluster.run("bench", "--requests", "1000", "--rate", "1", "--seconds", "1", "-o", "json")
    assert json.loads(found.stdout)["answers"] == len(served.router.bodies) <= 2


@pytest.mark.parametrize("option", ["--requests=1001", "--concurrency=65", "--prompt-tokens=8193", "--seconds=601"])
async def test_a_load_that_is_not_short_is_refused(served: Served, option: str) -> None:
    assert (await served.cluster.run("bench", option)).exit_code == 2
    assert served.router.bodies == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], {"p50": 3.0, "p90": 3.0, "p99": 3.0}),
        ([float(n) for n in range(1, 101)], {"p50": 50.0, "p90": 90.0, "p99": 99.0}),
        ([2.0, 1.0], {"p50": 1.0, "p90": 2.0, "p99": 2.0}),
    ],
)
def test_percentiles_are_measured_values(values: list[float], expected: dict[str, float]) -> None:
    assert percentiles(values) == expected
