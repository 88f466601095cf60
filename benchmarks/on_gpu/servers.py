"""One P and two D servers of vLLM on one GPU, with a model of random weights: `python -m benchmarks.on_gpu.servers`.

They run on after the command has ended. Each has its own process group, which a fault kills.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

HOST: Final = "127.0.0.1"
MODEL: Final = "m"
FOLDER: Final = Path("/tmp/on_gpu")  # noqa: S108 - a machine for this one purpose
PORTS: Final = {"p": 8100, "d1": 8201, "d2": 8202}

_SHAPE: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
"""Llama-3.2-1B, with a smaller vocabulary."""


def shape(**changes: Any) -> dict[str, Any]:
    """A model's configuration, which differs from that of Llama-3.2-1B in some members."""
    return _SHAPE | changes


def write_model(folder: Path, **changes: Any) -> None:
    """Write a configuration and a tokenizer of one token a word: a text has exactly the tokens that it was made of.

    Args:
        folder: Where.
        changes: Members of the configuration that differ from those of Llama-3.2-1B.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = shape(**changes)
    words = config["vocab_size"]
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{number}": number for number in range(3, words)}
    special = [
        {"id": number, "content": word, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for word, number in list(vocabulary.items())[:3]
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    files = {
        "config.json": config,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192, **names},
        "special_tokens_map.json": names,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def start(name: str, *options: str) -> None:
    """Start a server, with further options; its log is beside the model."""
    role = {"p": "producer", "d": "consumer"}[name[0]]
    transfer = {"kv_connector": "NixlConnector", "kv_role": f"kv_{role}", "kv_load_failure_policy": "recompute"}
    graphs = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, *range(8, 257, 8)]}
    line = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(FOLDER / "model"), "--load-format=dummy"]
    line += [f"--host={HOST}", f"--port={PORTS[name]}", f"--served-model-name={MODEL}", "--dtype=bfloat16"]
    line += ["--block-size=128", "--no-enable-prefix-caching", "--max-model-len=8192", "--max-num-seqs=256"]
    line += ["--gpu-memory-utilization=0.25", f"--kv-cache-memory-bytes={12 * 2**30}"]
    line += [f"--kv-transfer-config={json.dumps(transfer)}", "--disable-uvicorn-access-log"]
    if role == "producer":
        line += ["--max-num-batched-tokens=8192", "--enforce-eager"]
    else:
        line += ["--max-num-batched-tokens=2048", f"--compilation-config={json.dumps(graphs)}"]
    line += options
    environment = os.environ | {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": HOST,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(PORTS[name] - 2500),
        "UCX_TCP_TX_SEG_SIZE": "512k",  # as the operator sets them; UCX goes over TCP here, with 8 KiB by default
        "UCX_TCP_RX_SEG_SIZE": "512k",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer was not installed on the device
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "2",
    }
    with (FOLDER / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(line, env=environment, stdout=log, stderr=log, start_new_session=True)
    (FOLDER / f"{name}.pid").write_text(str(process.pid), encoding="ascii")


def kill(name: str) -> None:
    """SIGKILL to all processes of a server."""
    os.killpg(int((FOLDER / f"{name}.pid").read_text(encoding="ascii")), signal.SIGKILL)


def wait_until_ready(name: str, seconds: float = 240) -> None:
    """Wait until a server answers.

    Raises:
        SystemExit: It does not.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answers(f"http://{HOST}:{PORTS[name]}/health"):
            return
        time.sleep(0.5)
    raise SystemExit(f"{name} does not answer; its log:\n" + (FOLDER / f"{name}.log").read_text()[-6000:])


def answers(url: str) -> bool:
    """Whether a server of ours answers with a status of success."""
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - ours
            return True
    except (urllib.error.URLError, OSError):
        return False


def samples(port: int) -> list[str]:
    """The lines of the /metrics of the server at a port."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=5) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return lines


def metric(port: int, family: str) -> float:
    """The sum of a family's samples at a port."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in samples(port) if line.split("{")[0].split(" ")[0] == family)


def main() -> None:
    """Start all of them, and wait."""
    write_model(FOLDER / "model")
    for name in PORTS:
        start(name)
    for name in PORTS:
        wait_until_ready(name)
        print(f"{name} is ready")


if __name__ == "__main__":
    main()
