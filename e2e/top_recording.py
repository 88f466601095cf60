"""Draws `kubectl pdi top` during a load that overflows to the tiers: `make recording`, after the demo.

    uv run python -m e2e.top_recording docs/images/top.svg

The pictures are those of the command, by its own functions, from metrics of the real engines.
"""

import asyncio
import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from e2e.cluster import Cluster
from e2e.console import headline, save_picture, say
from e2e.demo import NAME as DEMO
from e2e.demo import NAMESPACE, name_option
from e2e.install import REPOSITORY, ImageReferences, apply, example
from e2e.kubectl import Kubectl
from e2e.requests import complete, unseen_prompt
from e2e.waiting import wait_ready, wait_until
from pdinference.api.names import ENGINE_ROLES
from pdinference.cli.connection import Connection
from pdinference.cli.top.reading import read_engines
from pdinference.cli.top.text import remember, view
from pdinference.cli.top.usage import EngineUse
from pdinference.cluster.client import ApiServer

if TYPE_CHECKING:
    from collections import deque

NAME: Final = "tiny-tiers"
_EXAMPLE: Final = REPOSITORY / "examples" / "cpu-decode-disk-tier.yaml"
_BLOCKS: Final = 64
"""KV blocks of an engine, of 128 tokens. Five of the requests fill them."""
_REQUESTS: Final = 16
_REPEATS: Final = 70
_ANSWER_TOKENS: Final = 500
_SECONDS: Final = 2.0
"""Between two looks, as in the command."""
_LOOKS_AFTER: Final = 3
_WIDTH: Final = 100

Look = tuple[float, list[EngineUse], dict[str, list[float]]]
"""Seconds since the start of the load, the engines, and their curves until then."""


@click.command()
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
@name_option
def main(picture: Path, name: str) -> None:
    """Put load on a model of the demo's cluster, and draw what `top` shows before, at the peak and after."""
    kubeconfig = Cluster.find(name).kubeconfig
    kubectl = Kubectl(kubeconfig, NAMESPACE)
    with _model(kubectl):
        looks = Connection(NAME, NAMESPACE, kubeconfig, None).do(lambda api, _: _looks_during_load(api, kubectl))
    peak = max(looks, key=lambda look: max(one.kv_used or 0 for one in look[1]))
    draw([looks[0], peak, looks[-1]], picture)


def draw(looks: list[Look], picture: Path) -> None:
    """Draw looks one below the other."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), highlight=False)
    for seconds, engines, curves in looks:
        console.print(f"[bold]after {seconds:.0f} s[/bold]")
        console.print(view(console, engines, curves))
        console.print()
    save_picture(console, picture, f"kubectl pdi top {NAME}")


@contextmanager
def _model(kubectl: Kubectl) -> Iterator[None]:
    headline("A model with a small KV cache and tiers")
    vllm = kubectl.get("pdi", DEMO)["spec"]["engine"]["image"]
    images = ImageReferences(operator="", vllm=vllm)
    document = example(images, _EXAMPLE)
    document["spec"]["engine"]["args"] = {"num-gpu-blocks-override": _BLOCKS}
    # The same model, whose architecture the demo's example has. So there is a memory plan.
    document["spec"]["model"]["architecture"] = example(images)["spec"]["model"]["architecture"]
    apply(kubectl, document)
    try:
        wait_ready(kubectl, NAME)
        wait_until("the operator to read the size of the KV cache", lambda: _measured(kubectl))
        yield
    finally:
        kubectl.run("delete", "pdi", NAME, "--wait=false")


def _measured(kubectl: Kubectl) -> bool:
    plan = kubectl.get("pdi", NAME)["status"].get("plan", {})
    return all("observedKvCapacityTokens" in plan.get(role, {}) for role in ENGINE_ROLES)


async def _looks_during_load(api: ApiServer, kubectl: Kubectl) -> list[Look]:
    say(f"{_REQUESTS} requests at once")
    resource = kubectl.get("pdi", NAME)
    history: dict[str, deque[float]] = {}
    looks: list[Look] = []
    start = time.monotonic()

    async def look() -> None:
        engines = await read_engines(api, kubectl.namespace, resource)
        remember(history, engines)
        curves = {engine: list(values) for engine, values in history.items()}
        looks.append((time.monotonic() - start, engines, curves))
        await asyncio.sleep(_SECONDS)

    await look()
    load = asyncio.create_task(asyncio.to_thread(_send, kubectl))
    while not load.done():
        await look()
    await load
    for _ in range(_LOOKS_AFTER):
        await look()
    return looks


def _send(kubectl: Kubectl) -> None:
    prompts = [unseen_prompt(_REPEATS) for _ in range(_REQUESTS)]
    with kubectl.port_forward(f"service/{NAME}", 80) as url, ThreadPoolExecutor(_REQUESTS) as clients:
        answers = [
            clients.submit(complete, url, NAME, prompt, _ANSWER_TOKENS, ignore_eos=True, timeout=600)
            for prompt in prompts
        ]
        for answer in answers:
            answer.result()


if __name__ == "__main__":
    main()
