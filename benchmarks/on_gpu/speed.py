"""`vllm bench serve` through our router and through vllm-router, in turns: `python -m benchmarks.on_gpu.speed`.

The servers run already (`benchmarks.on_gpu.servers`). Both routers have the same P and D, and get the same random
prompts; D alone gets them too, for reference. The command's own code runs in this process, because its imports take
longer than most of the runs.
"""

import argparse
import contextlib
import io
import json
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop
from vllm.benchmarks.serve import add_cli_args, main_async
from vllm.utils.argparse_utils import FlexibleArgumentParser

from benchmarks.memory import cpu_seconds
from benchmarks.on_gpu.routers import routers
from benchmarks.on_gpu.servers import FOLDER, HOST, MODEL, PORTS, metric

_QUERIES: Final = "vllm:external_prefix_cache_queries_total"
_HITS: Final = "vllm:external_prefix_cache_hits_total"
_FAILED: Final = "vllm:nixl_num_failed_transfers_total"
_LOADS: Final = {
    "one at a time": "--max-concurrency=1 --num-prompts=100 --input-len=1000 --output-len=16",
    "8 requests/s": "--request-rate=8 --num-prompts=120 --input-len=1000 --output-len=128",
    "64 at a time": "--max-concurrency=64 --num-prompts=640 --input-len=1000 --output-len=128",
    "200 at a time": "--max-concurrency=200 --num-prompts=1000 --input-len=200 --output-len=128",
}
_COLUMNS: Final = {
    "TTFT p50": "median_ttft_ms",
    "p99": "p99_ttft_ms",
    "ITL p50": "median_itl_ms",
    "p99 ": "p99_itl_ms",
    "tokens/s": "output_throughput",
    "failed": "failed",
}


@dataclass
class Runs:
    """The rounds of one load through one router.

    Attributes:
        results: What `vllm bench serve` reports of each.
        cpu_us: CPU of the router for each token.
    """

    results: list[dict[str, Any]] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)


def bench(port: int, load: str, seed: int) -> dict[str, Any]:
    """One run."""
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    line = f"--host={HOST} --port={port} --model={FOLDER / 'model'} --served-model-name={MODEL} --dataset-name=random"
    line += f" --temperature=0 --seed={seed} --num-warmups=4 --disable-tqdm --metric-percentiles=99 --save-detailed"
    with contextlib.redirect_stdout(io.StringIO()):
        return uvloop.run(main_async(parser.parse_args([*line.split(), *load.split()])))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--loads", nargs="*", default=list(_LOADS))
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    with routers(["d1"]) as found:
        targets = {name: (one.port, one.process.pid) for name, one in found.items()} | {"D alone": (PORTS["d1"], 0)}
        for port, _ in targets.values():
            bench(port, "--num-prompts=20 --input-len=500 --output-len=16", 0)
        for load in arguments.loads:
            measure(load, targets, arguments.rounds, arguments.out)


def measure(load: str, targets: dict[str, tuple[int, int]], rounds: int, out: Path) -> None:
    """One load through all of them, in turns."""
    runs = {name: Runs() for name in targets}
    counted = {family: metric(PORTS["d1"], family) for family in (_QUERIES, _HITS, _FAILED)}
    prompts = 0
    for number in range(rounds):
        for name, (port, pid) in targets.items():
            if name == "D alone" and number:
                continue
            used = cpu_seconds(pid) if pid else 0.0
            result = bench(port, _LOADS[load], 100 * number + 1)
            runs[name].cpu_us.append(1e6 * (cpu_seconds(pid) - used if pid else 0.0) / result["total_output_tokens"])
            runs[name].results.append(result)
            prompts += result["total_input_tokens"] if pid else 0
            stem = f"{load}-{name}-{number}".replace(" ", "_").replace("/", "_")
            kept = {key: value for key, value in result.items() if key not in {"generated_texts", "errors"}}
            (out / f"{stem}.json").write_text(json.dumps(kept), encoding="utf-8")
    report(load, runs)
    moved = {family: metric(PORTS["d1"], family) - before for family, before in counted.items()}
    print(f"prompt tokens through routers: {prompts}; on D: {moved}\n", flush=True)


def report(load: str, runs: dict[str, Runs]) -> None:
    """A line for each round, and the first tokens of all rounds together."""
    print(f"{load}: {_LOADS[load]}")
    print(f"{'':<16}" + "".join(f"{column:>10}" for column in _COLUMNS) + f"{'CPU us':>10}")
    for name, one in runs.items():
        for result, cpu in zip(one.results, one.cpu_us, strict=True):
            print(f"{name:<16}" + "".join(f"{result[key]:>10.2f}" for key in _COLUMNS.values()) + f"{cpu:>10.1f}")
        first = [1000 * value for result in one.results for value in result["ttfts"]]
        print(f"{'  all rounds':<16}{statistics.median(first):>10.2f}{statistics.quantiles(first, n=100)[98]:>10.2f}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
