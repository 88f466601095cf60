"""How well a router chooses: requests of a trace through each router, to servers with a model of prefix caches.

Four unsplit servers compute one prompt at a time and keep 512,000 tokens each (`benchmarks.fake_vllm`). What a router
sends to the right server does not have to be computed again; what it sends to a busy one waits.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.routers import client
from benchmarks.routers.launch import Tools, router_of
from benchmarks.routers.plan import Asked
from benchmarks.routers.servers import counts, fakes

SERVERS: Final = 4
OPTIONS: Final = ("--prefill-rate=40000", "--blocks=1000", "--step-ms=5", "--tokens=8")


def measure(tools: Tools, name: str, asked: Sequence[Asked], salt: int) -> dict[str, Any]:
    """A row: the load through a router with new servers.

    Args:
        tools: The other routers.
        name: Of the router.
        asked: The requests.
        salt: Of their texts.
    """
    with fakes(SERVERS, *OPTIONS) as d, router_of(name, tools, d) as router:
        answers = send(router.port, asked, "m", salt)
        found = [counts(port) for port in d]
    prompts, cached = (sum(one[what] for one in found) for what in ("prompt_tokens", "cached_tokens"))
    busy = [one["busy_s"] for one in found]
    row = {"cached": cached / prompts, "requests": [one["requests"] for one in found]}
    return row | {"busiest": max(busy) / (sum(busy) / len(busy))} | times(answers)


def send(port: int, asked: Sequence[Asked], model: str, salt: int, limit_s: float = 120.0) -> list[client.Answer]:
    """Send the requests of a plan; the client gives each up after the limit."""
    texts = [one.text(number, salt) for number, one in enumerate(asked)]

    def make(number: int) -> dict[str, Any]:
        return client.body(texts[number], asked[number].answer, model)

    return asyncio.run(client.send(port, [one.at for one in asked], make, limit_s))


def times(answers: Sequence[client.Answer]) -> dict[str, Any]:
    """Times in ms, and how many requests failed."""
    whole = [one for one in answers if one.outcome == client.WHOLE]
    columns = {
        "first": [one.first for one in whole],
        "token": [one.token_s for one in whole],
        "whole": [one.whole for one in whole],
    }
    found = {
        f"{name}_p{at}_ms": 1000 * client.percentile(values, at) for name, values in columns.items() for at in (50, 95)
    }
    return found | {"sent": len(answers), "failed": len(answers) - len(whole)}


def rounds(tools: Tools, names: Sequence[str], asked: Sequence[Asked], number: int) -> Iterator[dict[str, Any]]:
    """Rows of several rounds, in each of which the order of the routers is another one."""
    for at in range(number):
        for name in (*names[at % len(names) :], *names[: at % len(names)]):
            yield {"router": name, "round": at + 1} | measure(tools, name, asked, at + 1)
