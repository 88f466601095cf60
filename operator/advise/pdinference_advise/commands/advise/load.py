"""Options for the load: a distribution, a trace in a file, or the load of the running resource.

Tests: tests/advise/commands/advise/test_advise_live.py, tests/advise/commands/advise/test_advise.py
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import click

from pdinference.api.names import LABEL_NAME, LABEL_ROLE, ROUTER_STATE_PORT, Role
from pdinference.api.pod_owner import is_of_workload
from pdinference.cli.connection import Connect
from pdinference.cli.option_types import NumberRange
from pdinference.loadmetrics.scraping.http_answer import LONGEST_BODY
from pdinference_advise.advice.workload import lengths, live, synthetic, traces
from pdinference_advise.advice.workload.live import read_router

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer, Json
    from pdinference_advise.advice.workload.live import LiveLoad, RouterReading
    from pdinference_advise.advice.workload.synthetic import Prefixes, Synthetic
    from pdinference_advise.advice.workload.trace import Trace
    from pdinference_advise.advice.workload.traces.mooncake import TimeUnit

_REQUESTS: Final = 20_000
"""Requests of a load whose length is not given."""
_LEAST_S: Final = 120.0
_MOST_S: Final = 86_400.0
_MOST_SIMULATED: Final = 60_000
"""Requests of the busiest part, which is what simulations take."""
_LIVE_S: Final = 60
_MOST_PODS: Final = 64


class PodReader(Protocol):
    """What is needed of the API server."""

    async def get(self, path: str, **query: str) -> "Json":
        """Read a list."""

    async def page(self, path: str, *, most: int, **query: str) -> bytes:
        """Read a response of bounded size."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the options say."""

    rate: float | None
    prompt_tokens: str | None
    answer_tokens: str | None
    classes: tuple[str, ...]
    shared_prefix: str | None
    burstiness: float
    trace: BinaryIO | None
    trace_unit: "TimeUnit | None"
    live: bool
    seconds: float | None
    seed: int
    cluster: Connect

    def read(self, name: str) -> "Trace":
        """The requests.

        Args:
            name: Of the resource, for --live.

        Raises:
            UsageError: Options are missing or contradict each other.
            WorkloadError: One cannot be used.
        """
        self._require_one_source()
        if self.trace is not None:
            found = traces.read(self.trace, self.trace.name, unit=self.trace_unit)
            return found.at_rate(self.rate) if self.rate else found
        if self.live:
            load = self._measured(name)
            notes = load.notes
            workload = replace(load.workload, rate=self.rate) if self.rate else load.workload
        else:
            workload, notes = self._synthetic(), ()
        length = self.seconds or min(_MOST_S, max(_LEAST_S, _REQUESTS / workload.rate))
        return replace(workload.trace(length, seed=self.seed), notes=notes)

    def peak(self, load: "Trace") -> "Trace":
        """The busiest part: as long as asked for, and not longer than simulations take."""
        length = load.seconds if self.trace is None or self.seconds is None else self.seconds
        return load.busiest(min(length, _MOST_SIMULATED / load.rate))

    def _require_one_source(self) -> None:
        lengths = bool(self.prompt_tokens or self.answer_tokens or self.classes)
        if (self.trace is not None) + self.live + lengths > 1:
            raise click.UsageError("Give one load: --prompt-tokens with --answer-tokens, --class, --trace or --live.")
        if self.trace is not None or self.live:
            return
        if self.rate is None or not (self.classes or (self.prompt_tokens and self.answer_tokens)):
            raise click.UsageError(
                "Describe the load: --rate 10 --prompt-tokens 1000 --answer-tokens 250, or --trace FILE, or --live."
            )
        if self.classes and (self.prompt_tokens or self.answer_tokens):
            raise click.UsageError("--class has the lengths of its requests. Leave --prompt-tokens out.")

    def _synthetic(self) -> "Synthetic":
        prefixes: Prefixes | None = None
        if self.shared_prefix:
            prefixes = synthetic.parse_prefixes(self.shared_prefix, "--shared-prefix")
        if self.classes:
            classes = synthetic.parse_classes(self.classes, "--class")
        else:
            prompt = lengths.parse(self.prompt_tokens or "", "--prompt-tokens")
            answer = lengths.parse(self.answer_tokens or "", "--answer-tokens")
            classes = (synthetic.RequestClass(prompt, answer),)
        return synthetic.Synthetic(self.rate or 0.0, classes, self.burstiness, prefixes)

    def _measured(self, name: str) -> "LiveLoad":
        seconds = self.seconds or _LIVE_S

        async def work(api: "ApiServer", namespace: str) -> "LiveLoad":
            click.echo(f"Measuring the load of {namespace}/{name} for {seconds:.0f} s.", err=True)
            before = await readings(api, namespace, name)
            await asyncio.sleep(seconds)
            return live.load(before, await readings(api, namespace, name), seconds)

        return self.cluster(name).do(work)


async def readings(api: "PodReader", namespace: str, name: str) -> "dict[str, RouterReading]":
    """What each router pod has counted, through the API server's proxy."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    selector = f"{LABEL_NAME}={name},{LABEL_ROLE}={Role.ROUTER}"
    found = await api.get(pods, labelSelector=selector, fieldSelector="status.phase=Running", limit=str(_MOST_PODS))
    names = [pod["metadata"]["name"] for pod in found["items"] if is_of_workload(pod)]
    if not names:
        raise click.ClickException(f"{namespace}/{name} has no running router pod, so its load cannot be measured.")
    return {
        pod: read_router(await api.page(f"{pods}/{pod}:{ROUTER_STATE_PORT}/proxy/metrics", most=LONGEST_BODY), pod)
        for pod in names
    }


def load_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options. The command gets them as `load`."""

    @click.option("--rate", type=NumberRange(0, min_open=True), help="Requests per second.")
    @click.option("--prompt-tokens", metavar="LENGTHS", help="Such as 1000, 500..1500, 800~3000 or p50=800,p99=9000.")
    @click.option("--answer-tokens", metavar="LENGTHS", help="The same for answers.")
    @click.option(
        "--class", "classes", metavar="NAME:SHARE:PROMPT:ANSWER", multiple=True,
        help="A class of requests, such as chat:80%:500..1500:200; repeatable.",
    )  # fmt: skip
    @click.option("--shared-prefix", metavar="TOKENS/SHARE", help="Prompts with a common beginning: 2048/80%.")
    @click.option(
        "--burstiness", type=NumberRange(0), default=1.0, show_default=True, help="0: even, 1: Poisson, more: bursts."
    )
    @click.option(
        "--trace", type=click.File("rb"), help="Requests of a file: Azure's CSV, Mooncake's JSONL, or `vllm bench`."
    )
    @click.option(
        "--trace-unit", type=click.Choice(["ms", "s"]),
        help="Of time stamps in JSON lines.  [default: ms, if they are whole numbers]",
    )  # fmt: skip
    @click.option("--live", "is_live", is_flag=True, help="The load of the running resource, from its router.")
    @click.option(
        "--seconds", type=NumberRange(1, _MOST_S),
        help="Length of the load; of a trace, of its busiest part; with --live, of the measurement.",
    )  # fmt: skip
    @click.option("--seed", type=int, default=0, show_default=True, help="Of the random load.")
    @wraps(command)
    def with_load(*, is_live: bool, connect: Connect, **options: Any) -> None:
        own = {name: options.pop(name) for name in LoadOptions.__slots__ if name in options}
        command(load=LoadOptions(live=is_live, cluster=connect, **own), **options)

    return with_load
