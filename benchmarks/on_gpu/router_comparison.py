"""All routers in front of the same real vLLMs: `python3 -m benchmarks.on_gpu.router_comparison WAVE OUT` (GPUs).

Wave `unsplit` has four vLLMs, wave `split` two P and two D, spread over the GPUs, with a model of random weights. In
turns, each router gets the requests of a plan (`benchmarks.routers.plan`) with prompts that no server has seen. Then
all routers get load at once while a server is stopped for a while, and another one is killed. OUT gets a line of JSON
for each load; its `each` has the ms until the first token and until the end, and the tokens, of every request. `--fake`
takes fake servers, to try the script without GPUs.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.on_gpu import one_pod, servers
from benchmarks.processes import HOST, ports
from benchmarks.routers import choice, client, faults, plan
from benchmarks.routers.launch import SPLIT, UNSPLIT, Router, Tools, router_of
from benchmarks.routers.plan import Asked

_WIDER: Final[dict[str, Any]] = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 32_768, "vocab_size": 32_000,
}  # fmt: skip
"""The shape of Qwen2.5-1.5B with a smaller vocabulary: 28 KiB of KV cache a token."""
_ARGUMENTS: Final = [
    "--enable-prefix-caching", "--max-model-len=20000", "--max-num-seqs=256", "--max-num-batched-tokens=8192",
    "--gpu-memory-utilization=0.4", f"--kv-cache-memory-bytes={12 * 2**30}", "--disable-uvicorn-access-log",
]  # fmt: skip
_ROLES: Final = {"unsplit": ("d1", "d2", "d3", "d4"), "split": ("p1", "p2", "d1", "d2")}
_HITS, _QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
_ALONE: Final = 40
_FAULT_CLIENTS, _FAULT_TOKENS, _FAULT_S = 6, 200, 20.0
_STOPPED_S: Final = 10.0
_DIRECT: Final = "no router"
_DRAIN_S: Final = 25.0


class Servers:
    """vLLMs by name, with ports."""

    def __init__(self, names: Sequence[str], *, gpus: int, fake: bool) -> None:
        self.ports = dict(zip(names, ports(len(names)), strict=True))
        self.fake = fake
        self._gpus = gpus
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def p(self) -> list[int]:
        """Ports of P servers."""
        return [port for name, port in self.ports.items() if name.startswith("p")]

    @property
    def d(self) -> list[int]:
        """Ports of the others."""
        return [port for name, port in self.ports.items() if name.startswith("d")]

    @contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        """Start all, wait for them, and kill them at the end. Logs are in the folder."""
        try:
            for number, (name, port) in enumerate(self.ports.items()):
                with (folder / f"{name}.log").open("wb") as log:
                    self._processes[name] = subprocess.Popen(
                        self._line(name, port, gpu=number % self._gpus), stdout=log, stderr=log, start_new_session=True
                    )
            for name, port in self.ports.items():
                self._wait(name, port, folder)
            yield
        finally:
            for name in self._processes:
                self.signal(name, signal.SIGKILL)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a server."""
        try:
            os.killpg(self._processes[name].pid, number)
        except ProcessLookupError:
            return

    @property
    def ended(self) -> list[str]:
        """Servers that do not run: the death of one may be that of another, too."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def counter(self, family: str) -> float:
        """The sum of a counter of all servers."""
        return 0.0 if self.fake else sum(servers.metric(port, family) for port in self.ports.values())

    def _line(self, name: str, port: int, gpu: int) -> list[str]:
        if self.fake:
            return [sys.executable, "-m", "benchmarks.fake_vllm", str(port), *choice.OPTIONS]
        arguments = [*_ARGUMENTS]
        if self.p:
            role = "kv_producer" if name.startswith("p") else "kv_consumer"
            transfer = {"kv_connector": "NixlConnector", "kv_role": role, "kv_load_failure_policy": "recompute"}
            arguments += [f"--kv-transfer-config={json.dumps(transfer)}", "--block-size=128"]  # the operator's
        return one_pod.process(str(gpu), port, arguments)

    def _wait(self, name: str, port: int, folder: Path) -> None:
        end = time.monotonic() + 240
        while self._processes[name].poll() is None and time.monotonic() < end:
            if servers.answers(f"http://{HOST}:{port}/health"):
                return
            time.sleep(0.5)
        raise SystemExit(f"{name} does not answer; its log:\n" + (folder / f"{name}.log").read_text()[-6000:])


@click.command(help=__doc__)
@click.argument("wave", type=click.Choice(list(_ROLES)))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--plan", "file", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--llm-d", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--python", default=sys.executable, show_default=True, help="With the other routers.")
@click.option("--router", "names", multiple=True, help="Default: all that the wave has.")
@click.option("--gpus", default=2, show_default=True)
@click.option("--requests", default=500, show_default=True)
@click.option("--rate", default=20.0, show_default=True, help="Requests a second.")
@click.option("--rounds", default=2, show_default=True)
@click.option("--seconds", default=570.0, show_default=True, help="No load begins that may end later.")
@click.option("--fake", is_flag=True, help="Fake servers.")
def main(wave: str, out: Path, file: Path, llm_d: Path, **options: Any) -> None:
    """Measure a wave."""
    end = time.monotonic() + options["seconds"]
    tools, asked = Tools(options["python"], llm_d), plan.faster(plan.read(file)[: options["requests"]], options["rate"])
    folder = one_pod.FOLDER
    servers.write_model(folder / "model", **_WIDER)
    found = Servers(_ROLES[wave], gpus=options["gpus"], fake=options["fake"])

    def record(row: dict[str, Any]) -> None:
        row = {"wave": wave, "gpus": options["gpus"], "rate": options["rate"]} | row
        with out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)

    with found.running(folder), ExitStack() as stack:
        print(f"servers started {end - time.monotonic():.0f} s before the end", flush=True)
        names = options["names"] or (SPLIT if wave == "split" else UNSPLIT)
        started = [stack.enter_context(router_of(name, tools, found.d, found.p, servers.MODEL)) for name in names]
        print(f"routers started {end - time.monotonic():.0f} s before the end", flush=True)
        lasts = asked[-1].at + _DRAIN_S
        faults_last = 3 * _FAULT_S + faults.LIMIT_S
        _alone(found, started, record)
        for number in range(options["rounds"]):
            for router in started[:: -1 if number % 2 else 1]:
                if time.monotonic() + lasts + faults_last > end:
                    record({"router": router.name, "round": number + 1, "left_out": "no time"})
                    continue
                record({"router": router.name, "round": number + 1} | _load(found, router, asked, salt=_salt()))
        killed = ("p1", "d1") if found.p else ("d1",)
        for kind, victim in (("stopped for 10 s", "d2"), *(("killed", name) for name in killed)):
            if time.monotonic() + _FAULT_S + faults.LIMIT_S < end:
                _fault(found, started, kind, victim, record)


def _salt() -> int:
    return random.SystemRandom().randrange(10**9)


def _alone(found: Servers, routers: Sequence[Router], record: Callable[[dict[str, Any]], None]) -> None:
    """Requests one at a time, in turns."""
    targets = [(_DIRECT, found.d[0]), *((router.name, router.port) for router in routers)]
    first: dict[str, list[float]] = {name: [] for name, _ in targets}

    async def run() -> None:
        async with client.session() as session:
            for _ in range(_ALONE):
                for name, port in targets:
                    asked = client.body(plan.block_text(str(_salt()), 500), 1, servers.MODEL)
                    first[name].append((await client.ask(session, port, asked, 0.0, 30.0)).first)

    asyncio.run(run())
    for name, values in first.items():
        record({"router": name, "load": "alone", "first_p50_ms": 1000 * client.percentile(values, 50),
                "first_p95_ms": 1000 * client.percentile(values, 95)})  # fmt: skip


def _load(found: Servers, router: Router, asked: Sequence[Asked], salt: int) -> dict[str, Any]:
    """The requests of the plan."""
    hits, queries, used = found.counter(_HITS), found.counter(_QUERIES), router.cpu_seconds()
    answers = choice.send(router.port, asked, servers.MODEL, salt, limit_s=asked[-1].at + _DRAIN_S)
    hits, queries = found.counter(_HITS) - hits, found.counter(_QUERIES) - queries
    row = {"load": "plan", "cached": hits / queries if queries else None, "mib": router.mib()}
    each = [(round(1000 * one.first, 1), round(1000 * one.whole, 1), one.tokens) for one in answers]
    return row | {"cpu_s": router.cpu_seconds() - used} | choice.times(answers) | {"each": each}


def _fault(
    found: Servers, routers: Sequence[Router], kind: str, victim: str, record: Callable[[dict[str, Any]], None]
) -> None:
    """A server fails while all routers have load."""

    async def fault() -> None:
        if kind == "killed":
            found.signal(victim, signal.SIGKILL)
            return
        found.signal(victim, signal.SIGSTOP)
        await asyncio.sleep(_STOPPED_S)
        found.signal(victim, signal.SIGCONT)

    def make() -> dict[str, Any]:
        return client.body(plan.block_text(str(_salt()), 600), _FAULT_TOKENS, servers.MODEL)

    targets = [(router.name, router.port) for router in routers]
    for row in asyncio.run(faults.at_once(targets, make, _FAULT_CLIENTS, _FAULT_S, fault)):
        record({"fault": kind, "victim": victim, "ended": found.ended} | row)


if __name__ == "__main__":
    main()
