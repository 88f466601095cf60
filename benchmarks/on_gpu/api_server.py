"""What vLLM's API server takes for a token, and how long requests wait for it, on a machine with a GPU.

`python3 -m benchmarks.on_gpu.api_server OUT` starts vLLM with random weights in the shape of Llama-3.1-8B, measures the
CPU time of its API server as `pdinference calibrate` does, and sends short requests beside running streams, from a
process of its own. OUT gets one document of JSON, OUT.log what vLLM says. It takes about 80 s after the start of vLLM.
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

from benchmarks.on_gpu.servers import shape
from pdinference.engine.scripts import calibrate
from pdinference.engine.scripts.calibrate import Measuring, Metrics, Server

_PLAN: Final = Path("benchmarks/on_gpu/measured/defaults.yaml")
_STREAMS: Final = (256, 192, 160, 128, 64)
_PROMPT: Final = 64
_PROBES: Final = "16/2@10+0.5+5"
"""Requests beside the streams, for `benchmarks.on_gpu.loads`: hardly any work for the engine."""
_IN_ENGINE: Final = ("vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds")
_ENVIRONMENT: Final = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
_STEP_TOKENS: Final = 8192


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--config", type=Path, help="config.json of another model")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--streams", type=int, nargs="+", default=_STREAMS)
    parser.add_argument("--vllm", default="--max-model-len=16384 --dtype=bfloat16", help="arguments of vLLM")
    arguments = parser.parse_args()
    if arguments.config:
        config = json.loads(arguments.config.read_text(encoding="utf-8"))
    else:
        config = shape(**yaml.safe_load(_PLAN.read_text(encoding="utf-8"))["model"])
    os.environ |= _ENVIRONMENT
    start = time.monotonic()
    with calibrate.started(arguments.vllm.split(), config, "", _STEP_TOKENS, arguments.port) as pid:
        _tell(f"vLLM took {time.monotonic() - start:.0f} s to start")
        try:
            server = Server(f"http://127.0.0.1:{arguments.port}", pid, config["vocab_size"])
            found = asyncio.run(_measured(server, arguments))
        finally:
            shutil.copy(f"/proc/{pid}/fd/1", f"{arguments.out}.log")
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    _tell(f"ended after {time.monotonic() - start:.0f} s")


async def _measured(server: Server, arguments: argparse.Namespace) -> dict[str, Any]:
    measuring = Measuring(server, _STEP_TOKENS, max(arguments.streams), 300, quick=False)
    await measuring.api_server()
    waits = []
    for number in arguments.streams:
        async with measuring.held(number, _PROMPT, server.longest - _PROMPT - 1):
            waits.append({"running": number, **await _probed(server)})
            _tell(json.dumps(waits[-1]))
    about = {"vllm": server.version, "cores": os.cpu_count(), "arguments": arguments.vllm}
    return {"about": about, "servers": measuring.servers, "waits": waits, "notes": measuring.notes}


async def _probed(server: Server) -> dict[str, Any]:
    """What short requests beside the streams took, at the client and in the engine."""
    before, start, events = await asyncio.to_thread(server.metrics), time.monotonic(), server.events
    line = [sys.executable, "-m", "benchmarks.on_gpu.loads", server.url, _PROBES]
    process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    events, lasted = server.events - events, time.monotonic() - start
    after = await asyncio.to_thread(server.metrics)
    engine = sum(_mean(before, after, name) for name in _IN_ENGINE)
    probes = json.loads(output)
    return {
        "ttft_ms": probes.get("ttft"),
        "probes": probes["requests"] - probes["incomplete"],
        "engine_ms": round(1000 * engine, 3),
        "step_ms": round(1000 * _mean(before, after, "vllm:inter_token_latency_seconds"), 3),
        "events": round(events / lasted),
    }


def _mean(before: Metrics, after: Metrics, name: str) -> float:
    total, count = (after[f"{name}_{part}"] - before[f"{name}_{part}"] for part in ("sum", "count"))
    return total / max(1.0, count)


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
