"""The command `pdinference bench`.

Tests: tests/cli/test_bench.py
"""

import sys
from typing import Final

import click
from rich.table import Table

from pdinference.cli.chosen import name_argument
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.option_types import NumberRange
from pdinference.cli.output import output_option, print_json, say
from pdinference.cli.requests.chat import router_options
from pdinference.cli.requests.load import Load, LoadOutcome, measure
from pdinference.cli.requests.router import RouterForward, connected
from pdinference.cli.terminal import terminal
from pdinference.cluster.client import ApiServer

_FAILED: Final = 1
_ROWS: Final = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "gap": "gap between tokens",
    "total": "whole answer",
}


@click.command("bench")
@name_argument
@click.option("--requests", type=click.IntRange(1, 1000), default=32, show_default=True)
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, show_default=True, help="Requests at a time.")
@click.option("--rate", type=NumberRange(0.01, 100), help="Requests a second.  [default: as concurrency allows]")
@click.option("--prompt-tokens", type=click.IntRange(1, 8192), default=256, show_default=True, help="About.")
@click.option("--answer-tokens", type=click.IntRange(1, 1024), default=64, show_default=True)
@click.option("--seconds", type=click.IntRange(1, 600), default=120, show_default=True, help="Send none after that.")
@output_option()
@router_options
@connection_options
def bench_command(
    *, name: str | None, api_key: str | None, model: str | None, output: str, connect: Connect,
    requests: int, concurrency: int, rate: float | None, prompt_tokens: int, answer_tokens: int, seconds: int,
) -> None:  # fmt: skip
    """Send a short load to a PDInference, and print its latencies.

    The requests go through a port-forward to one router pod, and share P and D with the other clients of this resource.
    Other resources get none. Prompts are random words, so no prefix cache has them. Nothing is written.

    NAME may be left out if the namespace has one PDInference. The exit status is 1 if a request has no answer.
    """

    async def work(api: ApiServer, namespace: str) -> LoadOutcome:
        load = Load(requests, concurrency, rate, prompt_tokens, answer_tokens, seconds)
        async with connected(api, namespace, name, api_key=api_key, model=model, connections=concurrency) as router:
            say(_announced(load, router), err=True)
            with click.progressbar(length=requests, label="requests", file=sys.stderr) as bar:
                return await measure(router, load, lambda ended: bar.update(ended - bar.pos))

    outcome = connect(name or "").do(work)
    _print(outcome, output)
    sys.exit(_FAILED if outcome.errors else 0)


def _announced(load: Load, router: RouterForward) -> str:
    """Which load this puts, and on what."""
    pace = f", {load.rate:g} a second" if load.rate is not None else ""
    prompts, answers = load.requests * load.prompt_tokens, load.requests * load.answer_tokens
    return (
        f"Sends {load.requests} requests, at most {load.concurrency} at a time{pace}, to the model {router.model} of "
        f"{router.namespace}/{router.name} through {router.pod}: about {prompts:,} prompt tokens and {answers:,} "
        "answer tokens in all."
    )


def _print(outcome: LoadOutcome, output: str) -> None:
    if output == "json":
        print_json(outcome.as_json())
        return

    console = terminal()
    prompt, answer = outcome.tokens()
    seconds = outcome.seconds
    say(
        f"{len(outcome.answers)} answers in {seconds:.1f} s: {len(outcome.answers) / seconds:.2f} requests/s, "
        f"{prompt / seconds:,.0f} prompt tokens/s, {answer / seconds:,.0f} answer tokens/s"
    )
    if outcome.answers:
        console.print(_table(outcome))
    if by_decode := sum(one.prefill == "decode" for one in outcome.answers):
        say(f"D computed {by_decode} of the prompts. `kubectl pdi status` says why P did not.")
    for message, number in outcome.errors.items():
        say(f"{number} without answer: {message}", err=True, fg="red")


def _table(outcome: LoadOutcome) -> Table:
    latencies = outcome.latencies()
    table = Table(box=None, pad_edge=False)
    table.add_column("MILLISECONDS")
    for column in latencies["ttft"]:
        table.add_column(column, justify="right")
    for row, title in _ROWS.items():
        if row in latencies:
            table.add_row(title, *(f"{1000 * value:,.1f}" for value in latencies[row].values()))
    return table
