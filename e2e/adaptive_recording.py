"""Draws which ways an adaptive router sends requests while the load changes: `make recording`.

    uv run python -m e2e.adaptive_recording docs/images/adaptive.svg

The router is the real process. Its P and D pods are played by servers that take the time of a GPU (benchmarks/
timed_vllm.py): with vLLM on CPU, other work on the machine would decide. It needs no cluster.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import aiohttp
import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.fake_vllm import MODEL
from benchmarks.processes import HOST
from benchmarks.routers.launch import OURS, Tools, router_of
from benchmarks.timed_vllm import Engine, serving
from e2e.animation import Frame, save_animation
from e2e.console import say

_STAGE_S: Final = 15.0
_LOOK_S: Final = 1.5
_RECENT_S: Final = 6.0
_WAYS: Final = {"split": "P AND D", "decode": "D ALONE", "parameter": "P ALONE"}
"""Titles by value of the header X-PDInference-Way."""
_BAR: Final = 12


@dataclass(frozen=True)
class Kind:
    """Requests that are alike.

    Attributes:
        title: What the picture calls them.
        prompt: Tokens of a prompt.
        answer: Tokens of an answer.
    """

    title: str
    prompt: int
    answer: int


SHORT: Final = Kind("prompt 100, answer 120", 100, 120)
LONG: Final = Kind("prompt 6,000, answer 20", 6000, 20)
_KINDS: Final = (SHORT, LONG)
_STAGES: Final[tuple[Mapping[Kind, int], ...]] = ({SHORT: 4}, {SHORT: 12}, {SHORT: 8, LONG: 2}, {LONG: 4})
"""Clients at a time by kind, one stage after the other."""


@dataclass
class Ways:
    """Where requests went: when each answer began, on the monotonic clock, its kind and its way."""

    seen: list[tuple[float, Kind, str]] = field(default_factory=list)

    def recent(self, kind: Kind) -> Counter[str]:
        """Requests of a kind by way, lately."""
        since = time.monotonic() - _RECENT_S
        return Counter(way for at, one, way in self.seen if one == kind and at >= since)


@click.command()
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
def main(picture: Path) -> None:
    """Change the load of an adaptive router, and draw which ways requests go."""
    save_animation(asyncio.run(recorded()), picture, "pdinference router run --disaggregation Adaptive")


async def recorded() -> list[Frame]:
    """A look at the ways from time to time, while one stage follows the other."""
    ways, frames, engines = Ways(), [], {"P": Engine(), "D": Engine()}
    async with AsyncExitStack() as stack:
        p, d = [await stack.enter_async_context(serving(engine)) for engine in engines.values()]
        starting = router_of(OURS, Tools(sys.executable, Path()), (d,), (p,), MODEL, "--disaggregation=Adaptive")
        router = await asyncio.to_thread(starting.__enter__)  # it asks the engines, which this thread plays
        stack.push(starting)
        client = await stack.enter_async_context(aiohttp.ClientSession(f"http://{HOST}:{router.port}", trust_env=False))
        start = time.monotonic()
        for stage in _STAGES:
            say("; ".join(f"{clients} clients: {kind.title}" for kind, clients in stage.items()))
            until = time.monotonic() + _STAGE_S
            load = asyncio.gather(
                *(_send(client, kind, ways, until) for kind, clients in stage.items() for _ in range(clients))
            )
            while time.monotonic() < until:
                frames.append(Frame(look(time.monotonic() - start, stage, ways, engines), _LOOK_S))
                await asyncio.sleep(_LOOK_S)
            await load
    return frames


async def _send(client: aiohttp.ClientSession, kind: Kind, ways: Ways, until: float) -> None:
    """Send one request after the other, each with a prompt that no cache has."""
    while time.monotonic() < until:
        prompt = f"{uuid4()} " + "word " * (kind.prompt - 1)
        body = {"model": "m", "prompt": prompt, "max_tokens": kind.answer, "stream": True}
        async with client.post("/v1/completions", json=body) as answer:
            answer.raise_for_status()
            ways.seen.append((time.monotonic(), kind, answer.headers["X-PDInference-Way"]))
            await answer.read()


def look(seconds: float, stage: Mapping[Kind, int], ways: Ways, engines: Mapping[str, Engine]) -> RenderableType:
    """What the terminal shows."""
    found = Table(box=None, pad_edge=False)
    found.add_column("TOKENS", no_wrap=True)
    found.add_column("CLIENTS", justify="right")
    for title in _WAYS.values():
        found.add_column(title, no_wrap=True, min_width=_BAR + 5)
    for kind in _KINDS:
        counts = ways.recent(kind)
        found.add_row(kind.title, str(stage.get(kind, 0)), *(_bar(counts[way], counts.total()) for way in _WAYS))
    pods = Table(box=None, pad_edge=False)
    for column in ("POD", "ANSWERS IN PROGRESS", "PROMPTS WAITING", "PROMPT TOKENS", "ANSWER TOKENS"):
        pods.add_column(column, justify="left" if column == "POD" else "right")
    for name, engine in engines.items():
        counted = (len(engine.answers), len(engine.prompts), engine.computed, engine.generated)
        pods.add_row(name, *(f"{number:,}" for number in counted))
    return Group(
        Text(f"{seconds:3.0f} s", style="bold"),
        Text(),
        Text(f"Answers that began in the last {_RECENT_S:.0f} s, by X-PDInference-Way"),
        found,
        Text(),
        pods,
    )


def _bar(count: int, total: int) -> str:
    """A count, and its share as a bar."""
    return f"{'█' * round(_BAR * count / total)} {count}" if count else ""


if __name__ == "__main__":
    main()
