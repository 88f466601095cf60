"""Requests of a trace as texts: `python -m benchmarks.routers.plan TRACE PLAN` writes the first ones to a file.

The file is what a machine without the package `pdinference-advise` reads. A token is a word, of the tokenizer of
`benchmarks.on_gpu.servers.write_model`, too. Requests with the same block of 512 tokens in a trace have the same words
there.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

BLOCK: Final = 512
LONGEST: Final = 16_384
"""Prompt tokens at most."""
_WORDS: Final = range(100, 1000)
"""Numbers of words that are alike long: with the space, five bytes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request.

    Attributes:
        at: Seconds after the start.
        prompt: Tokens.
        answer: Tokens.
        blocks: Identities of the blocks with which the prompt begins.
    """

    at: float
    prompt: int
    answer: int
    blocks: tuple[int, ...] = ()

    def text(self, number: int, salt: int) -> str:
        """The prompt.

        Args:
            number: Of the request: what is in no block differs from all others.
            salt: Prompts with another salt have nothing in common.
        """
        parts = [block_text(f"{salt} {block}", BLOCK) for block in self.blocks]
        return " ".join([*parts, block_text(f"{salt} request {number}", self.prompt - BLOCK * len(self.blocks))])


def block_text(seed: str, words: int) -> str:
    """Random words."""
    return " ".join(f"w{number}" for number in random.Random(seed).choices(_WORDS, k=words))


def of_trace(file: Path, requests: int) -> list[Asked]:
    """The first requests of a trace whose prompts are not too long; each has a part of its own at its end."""
    from benchmarks.adaptive_traces import first_of  # noqa: PLC0415 - not on a machine with a GPU
    from pdinference_advise.advice.workload.traces import read  # noqa: PLC0415

    with file.open("rb") as stream:
        trace = first_of(read(stream, file.name), requests, LONGEST)
    start = trace.arrivals[0].at
    return [
        Asked(one.at - start, one.prompt, one.answer, one.prefix[: (one.prompt - 1) // BLOCK]) for one in trace.arrivals
    ]


def faster(plan: Sequence[Asked], rate: float) -> list[Asked]:
    """The same requests at another mean rate, bursts kept."""
    factor = (len(plan) - 1) / plan[-1].at / rate
    return [Asked(one.at * factor, one.prompt, one.answer, one.blocks) for one in plan]


def known(plan: Sequence[Asked]) -> float:
    """The share of prompt tokens that an earlier prompt began with: what one server without a limit has cached."""
    seen: set[tuple[int, ...]] = set()
    found = 0
    for one in plan:
        chains = [one.blocks[: length + 1] for length in range(len(one.blocks))]
        found += BLOCK * next((length for length, chain in enumerate(chains) if chain not in seen), len(chains))
        seen.update(chains)
    return found / sum(one.prompt for one in plan)


def read(file: Path) -> list[Asked]:
    """A plan that `main` wrote."""
    return list(_rows(file))


def _rows(file: Path) -> Iterator[Asked]:
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield Asked(row["at"], row["prompt"], row["answer"], tuple(row["blocks"]))


@click.command(help=__doc__)
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("plan", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--requests", default=600, show_default=True)
def main(trace: Path, plan: Path, requests: int) -> None:
    """Write a plan."""
    asked = of_trace(trace, requests)
    plan.write_text("".join(json.dumps(asdict(one)) + "\n" for one in asked), encoding="utf-8")
    click.echo(
        f"{len(asked)} requests in {asked[-1].at:.0f} s; {known(asked):.0%} of their tokens were in earlier ones"
    )


if __name__ == "__main__":
    main()
