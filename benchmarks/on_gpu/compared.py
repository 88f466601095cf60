"""Arrangements of vLLM beside each other: `python3 -m benchmarks.on_gpu.compared PLAN.yaml WAVE OUT` (root, GPUs).

All vLLMs of a wave run at once, as containers of one pod (`benchmarks.on_gpu.one_pod`), or as plain processes with
`plain: true`; those without load keep memory of their GPU, and nothing else. Each run of the wave puts the router, or
several (`routers: 2`), before some of them, and sends its loads, with the same arrivals as in all other runs. OUT gets
a line of JSON for each load, with all of its requests. A run with `goodput: true` sends each load at the rates of
`benchmarks.on_gpu.goodput`, with bounds from the runs before it with `lone: true`.
`benchmarks/on_gpu/measured/defaults.yaml` is such a plan.
"""

import argparse
import asyncio
import itertools
import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.on_gpu import one_pod, servers
from benchmarks.on_gpu.goodput import TRIES, Bounds, next_load
from benchmarks.on_gpu.loads import Load, load_of, run
from benchmarks.on_gpu.process_use import stat_of

_ROUTER: Final = """
from pdinference.router.pods import Pods

start = Pods.__init__

def counted(self, *given, **named):
    start(self, *given, **named)
    self.routers = {count}

Pods.__init__ = counted

from pdinference.cli import main

main()
"""
_WARM_UP: Final = Load(300, 20, 5, 0, 3)
_STATE_PORT: Final = 9080
_APART: Final = 10
"""Ports of an engine: NIXL has one for each data-parallel rank."""
_COUNTED: Final = {
    "bytes": "vllm:nixl_bytes_transferred_sum",
    "transfer_s": "vllm:nixl_xfer_time_seconds_sum",
    "transfers": "vllm:nixl_xfer_time_seconds_count",
    "post_s": "vllm:nixl_post_time_seconds_sum",
    "descriptors": "vllm:nixl_num_descriptors_sum",
    "failed": "vllm:nixl_num_failed_transfers_total",
    "preempted": "vllm:num_preemptions_total",
    "from_p": "vllm:external_prefix_cache_hits_total",
    "tokens": "vllm:generation_tokens_total",
}
_WAYS: Final = re.compile(r"pdinference_router_(ways?_|alone_prompt|cached_prompt)\w*total")
_SHOWN: Final = (
    "prompt",
    "rate",
    "finished_a_second",
    "ttft",
    "later_turn_ttft",
    "tpot",
    "gap",
    "whole",
    "kept",
    "ways",
)


def main() -> None:
    """Start a wave, measure, and end it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("wave")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=570, help="no load begins that may end later")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    plan = yaml.safe_load(arguments.plan.read_text(encoding="utf-8"))
    wave, start = plan["waves"][arguments.wave], time.monotonic()
    servers.write_model(one_pod.FOLDER / "model", **plan["model"])
    started = {name: plan["servers"][name] | {"port": 8100 + _APART * at} for at, name in enumerate(wave["servers"])}
    plain = wave.get("plain", False)
    place = one_pod.processes if plain else one_pod.pod
    lines = {
        name: _line(one, plan["arguments"] + wave.get("arguments", []), plain=plain) for name, one in started.items()
    }
    with place(lines) as pod:
        for name, one in started.items():
            one_pod.wait(pod, name, one["port"], 280)
        print(f"all started after {time.monotonic() - start:.0f} s", flush=True)
        bounds = Bounds()
        for each in wave["runs"]:
            _measure({"plain": plain} | each, started, arguments.out, end, bounds)


def _line(one: dict[str, Any], common: list[str], *, plain: bool) -> list[str]:
    where, arguments = (str(one["gpus"]), one["port"]), common + one["arguments"]
    if plain:
        return one_pod.process(*where, arguments, variables=one.get("variables"))
    return one_pod.container(*where, arguments)


def _measure(each: dict[str, Any], started: dict[str, Any], out: Path, end: float, bounds: Bounds) -> None:
    ports = {name: started[name]["port"] for name in [*each.get("p", []), *each["d"]]}
    options, routers = each.get("router", []), each.get("routers", 1)
    roles = [ports[name] for name in each.get("p", [])], [ports[name] for name in each["d"]]
    names = {"plain": each["plain"], "p": each.get("p", []), "d": each["d"], "router": options, "routers": routers}
    with _routers(routers, *roles, options) as urls:
        asyncio.run(run(urls, servers.MODEL, _WARM_UP, 0))
        seeds = itertools.count(1)
        for load in map(load_of, each["loads"]):
            shares: list[float] = []
            tried: Load | None = load
            while tried is not None:
                if time.monotonic() + tried.warm_up + tried.counted + each.get("drain", 30) > end:
                    print(f"no time for {each} {tried}", flush=True)
                    break
                result = _sent(urls, tried, ports, next(seeds))
                tried = _judged(result, each, bounds, shares, tried)
                line = names | result | {"ways": _ways(routers)}
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps({key: line.get(key) for key in (*names, *_SHOWN)}), flush=True)


def _judged(
    result: dict[str, Any], each: dict[str, Any], bounds: Bounds, shares: list[float], load: Load
) -> Load | None:
    """Take what a load gave for bounds, or compare it with them; the load at the next rate, None if there is none."""
    if each.get("lone"):
        bounds.learn(result)
    if not each.get("goodput"):
        return None
    result["kept"] = round(bounds.share_kept(result), 4)
    shares.append(result["kept"])
    return next_load(load, shares, each.get("tries", TRIES))


def _sent(urls: list[str], load: Load, ports: dict[str, int], seed: int) -> dict[str, Any]:
    """What a load took, and what the vLLMs counted meanwhile. Another seed for each load: no prompt is in a cache."""
    counted, used, since = _counters(ports), _cpu(ports), time.monotonic()
    result = asyncio.run(run(urls, servers.MODEL, load, seed, each=True))
    lasted = time.monotonic() - since
    counters = {
        name: {key: round(value - counted[name][key], 3) for key, value in of.items()}
        for name, of in _counters(ports).items()
    }
    cores = {
        name: {key: round((value - used[name][key]) / lasted, 2) for key, value in of.items()}
        for name, of in _cpu(ports).items()
    }
    return result | {"counters": counters, "cores": cores}


@contextmanager
def _routers(count: int, prefill: list[int], decode: list[int], options: list[str]) -> Iterator[list[str]]:
    """Router processes, each of which knows how many there are, as it does by watching pods in a cluster."""
    line = [sys.executable, "-c", _ROUTER.format(count=count), "router", "run", "--verification=Off"]
    line += [f"--host={servers.HOST}", "--max-queued-requests=1000"]
    line += ["--max-wait-seconds=600", f"--handover={'nixl' if prefill else 'none'}"]
    line += [f"--parameter={servers.HOST}:{port}" for port in prefill]
    line += [f"--decode={servers.HOST}:{port}" for port in decode] + options
    ports, states = range(8080, 8080 + count), range(_STATE_PORT, _STATE_PORT + count)
    with ExitStack() as stack, (one_pod.FOLDER / "router.log").open("ab") as log:
        for port, state in zip(ports, states, strict=True):
            router = subprocess.Popen([*line, f"--port={port}", f"--state-port={state}"], stdout=log, stderr=log)
            stack.callback(router.wait)
            stack.callback(router.kill)
        end = time.monotonic() + 120
        for state in states:
            while not servers.answers(f"http://{servers.HOST}:{state}/readyz"):
                if time.monotonic() > end:
                    raise SystemExit("the router is not ready")
                time.sleep(0.2)
        yield [f"http://{servers.HOST}:{port}" for port in ports]


def _counters(ports: dict[str, int]) -> dict[str, dict[str, float]]:
    return {
        name: {key: servers.metric(port, family) for key, family in _COUNTED.items()} for name, port in ports.items()
    }


def _ways(routers: int) -> dict[str, float]:
    """What the routers have counted of the ways of requests since they began."""
    found: dict[str, float] = defaultdict(float)
    for port in range(_STATE_PORT, _STATE_PORT + routers):
        for name, _, value in (line.rpartition(" ") for line in servers.samples(port) if _WAYS.match(line)):
            found[name.removeprefix("pdinference_router_")] += round(float(value), 3)
    return found


def _cpu(ports: dict[str, int]) -> dict[str, dict[str, float]]:
    """Seconds of CPU of each vLLM's processes, by their titles."""
    parents, titles, used = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent, cpu = stat_of(folder)
            titles[folder.name] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        parents[folder.name], used[folder.name] = parent, cpu
    found: dict[str, dict[str, float]] = {}
    for name, port in ports.items():
        roots = {pid for pid, title in titles.items() if f"--port={port} " in title and "setpriv" not in title}
        found[name] = defaultdict(float)
        for pid, title in titles.items():
            above: str | None = pid
            while above and above not in roots:
                above = parents.get(above)
            if above:
                short = title.split()[0].rpartition("/")[2] if title else ""
                found[name]["api" if pid in roots and "unshare" not in title else short] += used.get(pid, 0.0)
    return found


if __name__ == "__main__":
    main()
