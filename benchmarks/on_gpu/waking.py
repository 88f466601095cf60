"""From zero to the first token: `python3 -m benchmarks.on_gpu.waking OUT [--shape 14b] [--times 2]` (root, a GPU).

P and D share one GPU, with the options that `pdinference render` prints for them and code that is kept
(`engine.compileCache`). A request waits at the router while both start, each time as new pods: without caches of their
own. OUT gets a line for each time, with the seconds since the request: of each line of log that ends a phase of an
engine, until it is healthy, and until the first token.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import aiohttp

from benchmarks.on_gpu import servers, starts
from pdinference.api.names import METRIC_HANDED_OVER

_PORTS: Final = {"p": 8100, "d": 8201}
_STEPS: Final = {"p": 8192, "d": 2048}
_ROUTER: Final = (8080, 9080)
_KV_BYTES: Final = 20 * 2**30
_KEEPING_SECONDS: Final = 12.0
"""For a start that may have nothing new to keep."""
_WAIT_SECONDS: Final = 200.0
_OF_CANARIES: Final = re.compile(r"pdinference_router_(admission|canar|transfer_verif)")


def _engine(role: str, model: Path) -> subprocess.Popen[bytes]:
    port, transfer = _PORTS[role], {"kv_connector": "NixlConnector", "kv_load_failure_policy": "recompute"}
    transfer["kv_role"] = {"p": "kv_producer", "d": "kv_consumer"}[role]
    home = starts.FOLDER / f"pod-{role}"
    subprocess.run(["rm", "-rf", home], check=True)
    (home / "triton").mkdir(parents=True)
    variables = {"HOME": str(home), "TRITON_CACHE_DIR": str(home / "triton"), "HF_HUB_OFFLINE": "1"}
    variables |= {"VLLM_WORKER_MULTIPROC_METHOD": "fork", "VLLM_NO_USAGE_STATS": "1", "CUDA_VISIBLE_DEVICES": "0"}
    variables |= {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NIXL_SIDE_CHANNEL_HOST": servers.HOST}
    variables |= {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(port - 2500)}
    line = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--block-size=128"]
    line += [f"--host={servers.HOST}", f"--port={port}", f"--served-model-name={servers.MODEL}"]
    line += [f"--max-model-len={starts.LONGEST}", f"--max-num-batched-tokens={_STEPS[role]}"]
    line += [f"--kv-cache-memory-bytes={_KV_BYTES}", f"--kv-transfer-config={json.dumps(transfer)}"]
    line = starts.kept_line((model.name + role).encode().hex(), port, line)
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(line, env=os.environ | variables, stdout=pipe, stderr=both, start_new_session=True)


def _router(log: Path) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-c", "from pdinference.cli import main; main()", "router", "run", f"--host={servers.HOST}"]
    line += [f"--port={_ROUTER[0]}", f"--state-port={_ROUTER[1]}", "--max-wait-seconds=600"]
    line += [f"--parameter={servers.HOST}:{_PORTS['p']}", f"--decode={servers.HOST}:{_PORTS['d']}"]
    with log.open("ab") as file:
        return subprocess.Popen(line, stdout=file, stderr=file)


async def _first_token(prompt: list[int]) -> float:
    """When the first token of a request came, on the monotonic clock."""
    body = {"model": servers.MODEL, "prompt": prompt, "max_tokens": 16, "ignore_eos": True, "stream": True}
    timeout = aiohttp.ClientTimeout(total=starts.START_SECONDS)
    url = f"http://{servers.HOST}:{_ROUTER[0]}/v1/completions"
    async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, json=body) as answer:
        answer.raise_for_status()
        at = 0.0
        async for line in answer.content:
            if line.startswith(b"data:") and not at:
                at = time.monotonic()
        return at


def _wake(model: Path, out: Path, name: str) -> dict[str, Any]:
    """Seconds since a request came. `through_p`: until the first token of the first one that P computed."""
    router = _router(out / f"{name}-router.log")
    while not servers.answers(f"http://{servers.HOST}:{_ROUTER[1]}/healthz"):
        if router.poll() is not None:
            raise SystemExit("the router has ended")
        time.sleep(0.1)
    began = time.monotonic()
    engines = {role: _engine(role, model) for role in _PORTS}
    logs = {role: starts.Log(process, began) for role, process in engines.items()}
    found: dict[str, Any] = {}
    try:
        found["first_token"] = asyncio.run(_first_token(list(range(3, 503)))) - began
        prompts = (list(range(at, at + 500)) for at in itertools.count(700, 500))
        while (
            not (computed := servers.metric(_ROUTER[1], METRIC_HANDED_OVER))
            and time.monotonic() - began < _WAIT_SECONDS
        ):
            found["through_p"] = asyncio.run(_first_token(next(prompts))) - began
            found["second_request"] = time.monotonic() - began - found["through_p"]
        found["computed_by_p"] = computed
        found["canaries"] = [line for line in servers.samples(_ROUTER[1]) if _OF_CANARIES.match(line)]
        until = time.monotonic() + _KEEPING_SECONDS
        while not all(log.says("Compile cache: kept") for log in logs.values()) and time.monotonic() < until:
            time.sleep(0.1)
        return found | {role: log.found for role, log in logs.items()}
    finally:
        router.kill()
        for role, process in engines.items():
            starts.end(process, logs[role], out / f"{name}-{role}.log")


def main() -> None:
    """Write the model, and wake it some times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=starts.SHAPES, default="7b")
    parser.add_argument("--times", type=int, default=2)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    (starts.FOLDER / "kept").mkdir(parents=True, exist_ok=True)
    model = starts.write_weights(arguments.shape)
    for number in range(arguments.times):
        name = f"wake-{arguments.shape}-{number}"
        found = json.dumps({"shape": arguments.shape} | _wake(model, arguments.out, name))
        print(found, flush=True)
        with (arguments.out / "waking.jsonl").open("a", encoding="utf-8") as file:
            file.write(found + "\n")


if __name__ == "__main__":
    main()
