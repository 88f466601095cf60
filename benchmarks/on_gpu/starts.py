"""Starts of one vLLM, and where their time goes: `python3 -m benchmarks.on_gpu.starts OUT [CASE ...]` (root, a GPU).

The model is Qwen2.5-7B's shape, or that of 14B (`--shape 14b`), with random weights in files of real size. OUT gets a
folder's name: `starts.jsonl` with a line for each start, and its log with seconds since the process began. Cases run in
the order of the command line:

- `cold`: no compile cache, and neither the weights nor Python's files in memory
- `warm`: with all caches of the starts before
- `disk`: with compile caches, the weights and Python's files only on disk
- `runai`, `fast`: as `disk`, with the loaders runai_streamer and fastsafetensors
- `eager`, `O1`, `bytes`, `few`: as `warm`, with --enforce-eager, -O1, a given KV cache size, graphs of five sizes
- `fork`: as `warm`, and the engine's process is forked from the server's, in place of one that imports all again
- `fork-few`, `fork-eager`, `fork-O1`, `fork-bytes`: that and one of those
- `pod`: as `fork`, in a new pod (no caches of its own) whose engine keeps what it compiles in a folder of the node
  (`spec.engine.compileCache`); the first one fills it
- `first-pod`: as `pod`, with an empty folder, and the weights and Python's files only on disk
- `vllm`, `triton`, `inductor`: as `warm`, and only this one of the three caches is there
"""

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import resources
from pathlib import Path
from threading import Thread
from typing import Any, Final

from benchmarks.on_gpu import dead_peer, servers
from pdinference.engine.start_log import PHASES

FOLDER: Final = Path("/srv/starts")
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "7b": dead_peer.SHAPE,
    "14b": dead_peer.SHAPE
    | {
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
    },
}
"""Qwen2.5-7B's and Qwen2.5-14B's."""
_PORT: Final = 8100
_CACHES: Final = {"vllm": "VLLM_CACHE_ROOT", "triton": "TRITON_CACHE_DIR", "inductor": "TORCHINDUCTOR_CACHE_DIR"}
_CONSUMER: Final = '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'
_FEW: Final = '--compilation-config={"cudagraph_capture_sizes":[1,8,32,64,128]}'
_BYTES: Final = f"--kv-cache-memory-bytes={40 * 2**30}"
_OPTIONS: Final = {
    "runai": ["--load-format=runai_streamer"],
    "fast": ["--load-format=fastsafetensors"],
    "eager": ["--enforce-eager"],
    "O1": ["-O1"],
    "bytes": [_BYTES],
    "few": [_FEW],
    "fork-few": [_FEW],
    "fork-eager": ["--enforce-eager"],
    "fork-O1": ["-O1"],
    "fork-bytes": [_BYTES],
}
_FORKED: Final = ("fork", "fork-few", "fork-eager", "fork-O1", "fork-bytes", "pod", "first-pod")
_PODS: Final = ("pod", "first-pod")
_FROM_DISK: Final = ("cold", "disk", "runai", "fast", "first-pod")
_SAID: Final = {
    "imported": PHASES["imports"],
    "engine": PHASES["engine process"],
    "loading": PHASES["device"],
    "weights": "Loading weights took",
    "loaded": PHASES["weights"],
    "compiled": PHASES["compilation"],
    "profiled": PHASES["profiling"],
    "captured": PHASES["graphs"],
    "initialised": PHASES["warm-up"],
    "served": PHASES["server"],
}
"""Lines of vLLM's log that end a phase."""
LONGEST: Final = 16384
START_SECONDS: Final = 300.0
_STREAMS: Final = (1, 32)
_TOKENS: Final = 128
_KEEPING_SECONDS: Final = 8.0
"""For a start that may have nothing new to keep."""


def write_weights(chosen: str) -> Path:
    """Write a model of a shape with random weights, in files of 5 GB at most; its folder."""
    import torch  # noqa: PLC0415 - not on the machine that reads this
    from safetensors.torch import save_file  # noqa: PLC0415

    folder = FOLDER / f"model-{chosen}"
    if (folder / "model.safetensors.index.json").exists():
        return folder
    servers.write_model(folder, **SHAPES[chosen])
    shape = servers.shape(**SHAPES[chosen])
    hidden, inner, words = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    keys = shape["num_key_value_heads"] * shape["head_dim"]
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (hidden, hidden), "self_attn.q_proj.bias": (hidden,),
        "self_attn.k_proj.weight": (keys, hidden), "self_attn.k_proj.bias": (keys,),
        "self_attn.v_proj.weight": (keys, hidden), "self_attn.v_proj.bias": (keys,),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (inner, hidden), "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
    }  # fmt: skip
    tensors: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (words, hidden),
        "lm_head.weight": (words, hidden),
    }
    tensors |= {"model.norm.weight": (hidden,)}
    for number in range(shape["num_hidden_layers"]):
        tensors |= {f"model.layers.{number}.{name}": size for name, size in layer.items()}
    files, left = [dict[str, Any]()], 5e9
    for name, size in tensors.items():
        tensor = (torch.randn(size, dtype=torch.bfloat16, device="cuda") * 0.02).cpu()
        if (left := left - tensor.nbytes) < 0:
            files.append({})
            left = 5e9 - tensor.nbytes
        files[-1][name] = tensor
    index = dict[str, str]()
    for number, content in enumerate(files, 1):
        file = f"model-{number:05}-of-{len(files):05}.safetensors"
        save_file(content, folder / file, {"format": "pt"})
        index |= dict.fromkeys(content, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}), encoding="utf-8")
    return folder


def start(case: str, model: Path, out: Path, number: int) -> dict[str, Any]:
    """Start vLLM, ask it twice, and end it.

    Returns:
        Seconds since its process began: of each line that ends a phase, until it is healthy, and until its answers.
    """
    cache = FOLDER / "cache"
    if case == "cold":
        shutil.rmtree(cache, ignore_errors=True)
    if case in _CACHES:
        shutil.rmtree(FOLDER / "one", ignore_errors=True)
        shutil.copytree(cache / case, FOLDER / "one" / case)
        cache = FOLDER / "one"
    if case == "first-pod":
        shutil.rmtree(FOLDER / "kept", ignore_errors=True)
    if case in _PODS:
        cache = FOLDER / "pod"  # the same path as in any pod: vLLM's keys depend on it
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        (FOLDER / "kept").mkdir(exist_ok=True)
    if case in _FROM_DISK:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    began = time.monotonic()
    process = _process(case, model, cache)
    log = Log(process, began)
    try:
        health = f"http://{servers.HOST}:{_PORT}/health"
        while not servers.answers(health):
            if process.poll() is not None or time.monotonic() - began > START_SECONDS:
                return {"case": case, "failed": process.poll()} | log.found
            time.sleep(0.05)
        log.found["healthy"] = round(time.monotonic() - began, 3)
        for name in ("first_answer", "second_answer"):
            _ask(1)
            log.found[name] = round(time.monotonic() - began, 3)
        log.found["token_ms"] = {streams: _token_ms(streams) for streams in _STREAMS}
        until = time.monotonic() + _KEEPING_SECONDS
        while case in _PODS and not log.says("Compile cache: kept") and time.monotonic() < until:
            time.sleep(0.1)
        return {"case": case, "cache_bytes": _sizes(cache)} | log.found
    finally:
        end(process, log, out / f"{number}-{model.name}-{case}.log")


def end(process: subprocess.Popen[bytes], log: "Log", file: Path) -> None:
    """Kill an engine with all of its processes, and write its log."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    log.join()
    file.write_text("".join(log.lines), encoding="utf-8")


def kept_line(key: str, port: int, line: list[str]) -> list[str]:
    """The command line of an engine that keeps what it compiles in a folder of the node (`engine.compileCache`)."""
    program = resources.files("pdinference.engine.scripts") / "compile_cache.py"
    return [sys.executable, str(program), str(FOLDER / "kept"), key, str(port), *line]


def _process(case: str, model: Path, cache: Path) -> subprocess.Popen[bytes]:
    variables = {variable: str(cache / name) for name, variable in _CACHES.items()}
    variables = {"TRITON_CACHE_DIR": str(cache / "triton")} if case in _PODS else variables
    variables |= {"HOME": str(cache), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "CUDA_VISIBLE_DEVICES": "0"}
    variables |= {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}
    variables |= {"VLLM_WORKER_MULTIPROC_METHOD": "fork"} if case in _FORKED else {}
    line = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--block-size=128"]
    line += [f"--host={servers.HOST}", f"--port={_PORT}", f"--served-model-name={servers.MODEL}", _CONSUMER]
    line += [f"--max-model-len={LONGEST}", "--max-num-batched-tokens=2048", *_OPTIONS.get(case, [])]
    if case in _PODS:
        line = kept_line("0123456789abcdef", _PORT, line)
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(line, env=os.environ | variables, stdout=pipe, stderr=both, start_new_session=True)


class Log(Thread):
    """Reads the log of a process, with the seconds since it began."""

    def __init__(self, process: subprocess.Popen[bytes], began: float) -> None:
        super().__init__()
        self._process, self._began = process, began
        self.found: dict[str, Any] = {}
        self.lines: list[str] = []
        self.start()

    def says(self, text: str) -> bool:
        """Whether a line has a text."""
        return any(text in line for line in self.lines)

    def run(self) -> None:
        """Read until the process has ended."""
        for raw in self._process.stdout or ():
            at, text = time.monotonic() - self._began, raw.decode(errors="replace")
            self.lines.append(f"{at:8.3f} {text}")
            for name in (name for name, said in _SAID.items() if re.search(said, text)):
                self.found.setdefault(name, round(at, 3))


def _token_ms(streams: int) -> float:
    """Milliseconds of a token of so many requests at once: what an option that shortens starts costs."""
    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(_ask, [1] * streams))
        began = time.monotonic()
        list(pool.map(_ask, [_TOKENS] * streams))
    return round((time.monotonic() - began) / _TOKENS * 1000, 3)


def _ask(tokens: int) -> None:
    connection = http.client.HTTPConnection(servers.HOST, _PORT, timeout=120)
    body = {
        "model": servers.MODEL,
        "prompt": list(range(3, 503)),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != http.client.OK:
        raise SystemExit(f"status {answer.status}")


def _sizes(cache: Path) -> dict[str, int]:
    files = [file for file in cache.rglob("*") if file.is_file() and not file.is_symlink()]
    sizes = dict.fromkeys({file.relative_to(cache).parts[0] for file in files}, 0)
    for file in files:
        sizes[file.relative_to(cache).parts[0]] += file.stat().st_size
    return sizes | {"files": len(files)}


def main() -> None:
    """Write the model, and start the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", nargs="*", default=["cold", "warm"])
    parser.add_argument("--shape", choices=SHAPES, default="7b")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no start begins later than this")
    arguments = parser.parse_args()
    began = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    model = write_weights(arguments.shape)
    print(f"wrote the weights in {time.monotonic() - began:.0f} s", flush=True)
    for number, case in enumerate(arguments.cases, 1):
        if time.monotonic() - began > arguments.seconds:
            print(f"no time for {case}")
            break
        found = json.dumps({"shape": arguments.shape} | start(case, model, arguments.out, number))
        print(found, flush=True)
        with (arguments.out / "starts.jsonl").open("a", encoding="utf-8") as file:
            file.write(found + "\n")


if __name__ == "__main__":
    main()
