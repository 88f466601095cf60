"""Our router beside vllm-router, sglang-router and llm-d's: `python -m benchmarks.routers COMMAND`.

benchmarks/results/routers.md says how the other routers are installed. Each command prints a line of JSON for each
router and round.
"""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from benchmarks.routers import choice, faults, latency, plan, policies
from benchmarks.routers.launch import OURS_BY_LOAD, SPLIT, UNSPLIT, Tools


@click.group(help=__doc__)
@click.option("--python", required=True, type=click.Path(exists=True, dir_okay=False), help="With the other routers.")
@click.option("--llm-d", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--router", "names", multiple=True, type=click.Choice(UNSPLIT), help="Default: all.")
@click.pass_context
def main(context: click.Context, python: str, llm_d: Path, names: tuple[str, ...]) -> None:
    """Keep what all commands need."""
    context.obj = Tools(python, llm_d), names


def _print(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        click.echo(json.dumps({name: round(one, 3) if isinstance(one, float) else one for name, one in row.items()}))


def _fast(names: tuple[str, ...]) -> list[str]:
    """Without a second policy, which costs the same."""
    return [name for name in names if name != OURS_BY_LOAD]


@main.command("latency")
@click.option("--rounds", default=5, show_default=True)
@click.option("--streams", default=50, show_default=True, help="At a time.")
@click.option("--split", is_flag=True, help="Through P and D.")
@click.pass_obj
def latency_(given: tuple[Tools, tuple[str, ...]], rounds: int, streams: int, *, split: bool) -> None:
    """What a router adds to a request."""
    tools, names = given
    _print(latency.measure(tools, _fast(names or (SPLIT if split else UNSPLIT)), rounds, streams, split=split))


@main.command("memory")
@click.option("--streams", default=500, show_default=True)
@click.option("--seconds", default=30, show_default=True, help="That each stream takes.")
@click.pass_obj
def memory_(given: tuple[Tools, tuple[str, ...]], streams: int, seconds: int) -> None:
    """MiB (PSS) at rest, and with open streams."""
    tools, names = given
    _print(latency.memory(tools, _fast(names or UNSPLIT), streams, seconds))


@main.command("choice")
@click.argument("file", metavar="PLAN", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--requests", default=600, show_default=True)
@click.option("--rate", default=12.0, show_default=True, help="Requests a second.")
@click.option("--rounds", default=3, show_default=True)
@click.pass_obj
def choice_(given: tuple[Tools, tuple[str, ...]], file: Path, requests: int, rate: float, rounds: int) -> None:
    """How well a router chooses, on a plan that `python -m benchmarks.routers.plan` wrote."""
    tools, names = given
    asked = plan.faster(plan.read(file)[:requests], rate)
    click.echo(f"{plan.known(asked):.1%} of the prompt tokens were in earlier prompts", err=True)
    _print({"plan": file.stem} | row for row in choice.rounds(tools, names or UNSPLIT, asked, rounds))


@main.command("faults")
@click.option("--fault", "kinds", multiple=True, type=click.Choice(faults.KINDS), help="Default: all.")
@click.pass_obj
def faults_(given: tuple[Tools, tuple[str, ...]], kinds: tuple[str, ...]) -> None:
    """What becomes of requests when a pod, or the router, fails."""
    tools, names = given
    _print(faults.measure(tools, _fast(names or UNSPLIT), kinds or faults.KINDS))


@main.command("policies")
@click.pass_obj
def policies_(given: tuple[Tools, tuple[str, ...]]) -> None:
    """Which pods get requests by each policy of our router."""
    asyncio.run(policies.table(given[0]))


if __name__ == "__main__":
    main()
