"""What vLLM's API server takes for a token, and how long requests wait for it, on a machine with a GPU.

`python3 -m benchmarks.on_gpu.api_server OUT` starts vLLM with random weights in the shape of Llama-3.1-8B, measures the
CPU time of its API server as `pdinference calibrate` does, sends short requests beside running streams, and then loads
below and above what the API server can write. Clients are processes of their own. OUT gets one document of JSON,
OUT.log what vLLM says. It takes about 150 s after the start of vLLM.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.on_gpu.process_use import watched
from benchmarks.on_gpu.servers import shape
from pdinference_advise.commands.calibrate import measure_steps
from pdinference_advise.commands.calibrate.measure_steps import Measuring, Metrics, Server

_PLAN: Final = Path("benchmarks/on_gpu/measured/defaults.yaml")
_STREAMS: Final = (256, 192, 120)
_PROMPT: Final = 64
PROBES: Final = "16/2@10+0.5+5"
"""Requests beside the streams, for `benchmarks.on_gpu.loads`: hardly any work for the engine."""
_LOADS: Final = ("16/600@15+8+10", "100/600@18+8+10", "100/600@21+8+10")
"""About 80, 95 and 110 % of an API server that takes 80 µs for a token, the last two with more than 128 running."""
_IN_ENGINE: Final = ("vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds")
_HANDLED: Final = {"steps": "vllm:iteration_tokens_total_count", "tokens": "vllm:generation_tokens_total"}
_ENVIRONMENT: Final = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
_STEP_TOKENS: Final = 8192
_FIXED_WORK: Final = "import time; s = time.thread_time(); sum(range(20_000_000)); print(time.thread_time() - s)"
"""The same work on each machine, and on a machine that is busy: how fast its CPU is."""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--config", type=Path, help="config.json of another model")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--streams", type=int, nargs="*", default=_STREAMS)
    parser.add_argument("--loads", nargs="*", default=_LOADS, help="as for benchmarks.on_gpu.loads")
    parser.add_argument("--vllm", default="--max-model-len=16384 --dtype=bfloat16", help="arguments of vLLM")
    arguments = parser.parse_args()
    if arguments.config:
        config = json.loads(arguments.config.read_text(encoding="utf-8"))
    else:
        config = shape(**yaml.safe_load(_PLAN.read_text(encoding="utf-8"))["model"])
    os.environ |= _ENVIRONMENT
    start = time.monotonic()
    with measure_steps.started(arguments.vllm.split(), config, "", _STEP_TOKENS, arguments.port) as pid:
        _tell(f"vLLM took {time.monotonic() - start:.0f} s to start")
        try:
            server = Server(f"http://127.0.0.1:{arguments.port}", pid, config["vocab_size"])
            asyncio.run(_measure(server, arguments))
        finally:
            shutil.copy(f"/proc/{pid}/fd/1", f"{arguments.out}.log")
    _tell(f"ended after {time.monotonic() - start:.0f} s")


async def _measure(server: Server, arguments: argparse.Namespace) -> None:
    """Measure, and write what there is after each part."""
    about = {"vllm": server.version, "cores": os.cpu_count(), "arguments": arguments.vllm}
    found: dict[str, Any] = {"about": about | {"fixed_work_s": await _fixed_work()}}
    measuring = Measuring(server, _STEP_TOKENS, 256, 300, quick=False)
    await measuring.api_server()
    found |= {"servers": measuring.servers, "notes": measuring.notes, "waits": [], "loads": []}
    _write(arguments.out, found)
    for number in arguments.streams:
        begun = time.monotonic()
        async with measuring.held(number, _PROMPT, server.longest - _PROMPT - 1):
            began = {"running": number, "age_s": round(time.monotonic() - begun, 3)}
            found["waits"].append(began | await _beside(server, PROBES))
            found["waits"][-1]["fixed_work_s"] = await _fixed_work()
        _write(arguments.out, found)
    for load in arguments.loads:
        found["loads"].append({"load": load, **await _beside(server, load)})
        _write(arguments.out, found)


async def _beside(server: Server, load: str) -> dict[str, Any]:
    """What a load took, at the client and in the engine, and what the API server took meanwhile."""
    before, start = await asyncio.to_thread(server.metrics), time.monotonic()
    async with watched(server.pid, lambda: server.events) as samples:
        probes = json.loads(await _output("-m", "benchmarks.on_gpu.loads", "--each", server.url, load))
    lasted = time.monotonic() - start
    after = await asyncio.to_thread(server.metrics)
    return {
        "ttft_ms": probes.get("ttft"),
        "tpot_ms": probes.get("tpot"),
        "gap_ms": probes.get("gap"),
        "probes": probes["requests"] - probes["incomplete"],
        "engine_ms": round(1000 * sum(_mean(before, after, name) for name in _IN_ENGINE), 3),
        "step_ms": round(1000 * _mean(before, after, "vllm:inter_token_latency_seconds"), 3),
        "handled": {name: round((after[key] - before[key]) / lasted) for name, key in _HANDLED.items()},
        "lasted_s": round(lasted, 3),
        "samples": samples,
        "each": probes.get("each"),
    }


async def _fixed_work() -> float:
    return round(float(await _output("-c", _FIXED_WORK)), 4)


async def _output(*arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output


def _mean(before: Metrics, after: Metrics, name: str) -> float:
    total, count = (after[f"{name}_{part}"] - before[f"{name}_{part}"] for part in ("sum", "count"))
    return total / max(1.0, count)


def _write(out: Path, found: dict[str, Any]) -> None:
    out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    last = (found["loads"] or found["waits"] or found["servers"])[-1]
    _tell(json.dumps({name: value for name, value in last.items() if name not in {"samples", "each"}}))


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
