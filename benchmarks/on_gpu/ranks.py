"""How fast KV cache moves over TCP with one and two ranks: `python3 -m benchmarks.on_gpu.ranks` (root, two GPUs, vLLM).

A pair of P and D with a GPU each, and a pair with tensor parallelism 2 whose vLLMs share both GPUs, all with NIXL over
TCP on the loopback interface. P computes some prompts first. Then D is asked for all of them at once, and the time
until it has answered them counts. One line of JSON for each number of prompts.
"""

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.on_gpu import one_pod, servers

_PLAN: Final = Path("benchmarks/on_gpu/measured/places.yaml")
_TOKENS: Final = 8000
_AT_ONCE: Final = (1, 1, 4, 12, 12)
_OVER_TCP: Final = {"UCX_TLS": "tcp,cuda_copy"}
_ARGUMENTS: Final = ["--block-size=128", "--max-model-len=8192", "--max-num-batched-tokens=8192", "--enforce-eager"]
_GIBIBYTES: Final = 14
"""KV cache of a vLLM on all its GPUs: 12 prompts."""


def main() -> None:
    """Start both pairs, measure one after the other, and end them."""
    servers.write_model(one_pod.FOLDER / "model", **yaml.safe_load(_PLAN.read_text(encoding="utf-8"))["model"])
    started = {"p1": ("0", 8100, 1), "d1": ("1", 8110, 1), "p2": ("0,1", 8120, 2), "d2": ("0,1", 8130, 2)}
    lines = {name: _line(name[0], *rest) for name, rest in started.items()}
    ports = {name: port for name, (_, port, _) in started.items()}
    with one_pod.processes(lines) as first:
        for name, port in ports.items():
            one_pod.wait(first, name, port)
        for ranks in (1, 2):
            for prompts in _AT_ONCE:
                found = _measured(ports[f"p{ranks}"], ports[f"d{ranks}"], prompts)
                print(json.dumps({"ranks": ranks, "prompts": prompts, **found}), flush=True)


def _line(role: str, gpus: str, port: int, ranks: int) -> list[str]:
    transfer = {"kv_connector": "NixlConnector", "kv_role": {"p": "kv_producer", "d": "kv_consumer"}[role]}
    cache = f"--kv-cache-memory-bytes={_GIBIBYTES * 2**30 // ranks}"
    arguments = [*_ARGUMENTS, f"--tensor-parallel-size={ranks}", "--gpu-memory-utilization=0.02", cache]
    arguments += [f"--kv-transfer-config={json.dumps(transfer)}"]
    return one_pod.process(gpus, port, arguments, variables=_OVER_TCP)


def _measured(parameter: int, decode: int, prompts: int) -> dict[str, Any]:
    texts = [[random.randrange(3, 30000) for _ in range(_TOKENS)] for _ in range(prompts)]
    handed_over = [one_pod.complete(parameter, text, one_pod.REMOTE_DECODE)["kv_transfer_params"] for text in texts]
    before, start = _counters(decode), time.monotonic()
    with ThreadPoolExecutor(prompts) as pool:
        list(pool.map(one_pod.complete, [decode] * prompts, texts, handed_over))
    seconds = time.monotonic() - start
    moved, transferring, failed = (after - so_far for so_far, after in zip(before, _counters(decode), strict=True))
    return {
        "seconds": round(seconds, 3),
        "gigabytes": round(moved / 1e9, 2),
        "gigabytes_a_second": round(moved / 1e9 / seconds, 2),
        "seconds_of_transfers": round(transferring, 3),
        "failed": failed,
    }


def _counters(port: int) -> tuple[float, float, float]:
    names = ("nixl_bytes_transferred_sum", "nixl_xfer_time_seconds_sum", "nixl_num_failed_transfers_total")
    moved, seconds, failed = (servers.metric(port, f"vllm:{name}") for name in names)
    return moved, seconds, failed


if __name__ == "__main__":
    main()
