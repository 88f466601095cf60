"""P and D as two containers of one pod, a GPU each: `python3 -m benchmarks.on_gpu.one_pod` (root, two GPUs, vLLM).

The containers share the PID namespace and the network, and see both GPUs, as with `transfer.path: HostLocal`. They have
their own mounts, IPC namespace, `/tmp` and `/dev/shm`, and run as user 65532 without capabilities. Prints the speed
that vLLM counted, and what the GPUs sent over NVLink.
"""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.on_gpu import servers

FOLDER: Final = Path("/srv/one_pod")
"""Outside /tmp, of which each container has its own."""

PORTS: Final = {"producer": 8100, "consumer": 8101}
PROMPTS: Final = 20
TOKENS: Final = 8000
REMOTE_DECODE: Final = {"do_remote_decode": True, "do_remote_prefill": False}
"""What asks P to keep the KV cache for D."""

_ROOT: Final = 0
USER: Final = 65532
POD: Final = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
_CONTAINER: Final = ["unshare", "--mount", "--ipc", "--cgroup"]
_UNPRIVILEGED: Final = [
    "setpriv",
    f"--reuid={USER}",
    f"--regid={USER}",
    "--clear-groups",
    "--bounding-set=-all",
    "--inh-caps=-all",
    "--no-new-privs",
]
_START: Final = 'mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && exec "$0" "$@"'


def process(
    gpus: str, port: int, arguments: list[str], *, user: int = _ROOT, variables: Mapping[str, str] | None = None
) -> list[str]:
    """The command line of a plain process of vLLM, with the environment that it adds."""
    cache = _cache(user)
    environment = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": gpus,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": servers.HOST,  # the router takes no other host than that of the pod
        "VLLM_NIXL_SIDE_CHANNEL_PORT": port - 2500,
        "UCX_TCP_TX_SEG_SIZE": "512k",
        "UCX_TCP_RX_SEG_SIZE": "512k",
        "VLLM_USE_FLASHINFER_SAMPLER": 0,
        "VLLM_WORKER_MULTIPROC_METHOD": "fork",  # as the operator sets it: a start takes 0.72 of the time
        "HF_HUB_OFFLINE": 1,
        "VLLM_NO_USAGE_STATS": 1,
        "HOME": cache,
        "USER": "vllm",
        "VLLM_CACHE_ROOT": cache / "vllm",
        "TRITON_CACHE_DIR": cache / "triton",
        "TORCHINDUCTOR_CACHE_DIR": cache / "inductor",
    }
    vllm = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(FOLDER / "model"), "--load-format=dummy"]
    vllm += [f"--host={servers.HOST}", f"--port={port}", f"--served-model-name={servers.MODEL}", "--dtype=bfloat16"]
    vllm += ["--no-enable-prefix-caching", *arguments]
    return ["env", *(f"{name}={value}" for name, value in (environment | dict(variables or {})).items()), *vllm]


def container(gpus: str, port: int, arguments: list[str]) -> list[str]:
    """The command line of a container with one vLLM."""
    return contained(process(gpus, port, arguments, user=USER))


def contained(line: list[str]) -> list[str]:
    """The command line of a container that runs a command line."""
    return [*_CONTAINER, "sh", "-c", _START, *_UNPRIVILEGED, *line]


def main_process(lines: dict[str, list[str]]) -> None:
    """The first process of the pod: starts the containers, and ends when one of them does."""
    for name, line in lines.items():
        with (FOLDER / f"{name}.log").open("wb") as log:
            subprocess.Popen(line, stdout=log, stderr=log)
    os.wait()


@contextmanager
def pod(lines: dict[str, list[str]]) -> Iterator[subprocess.Popen[bytes]]:
    """A pod of such containers by name, whose logs are NAME.log in the folder."""
    with _running(POD, lines, USER) as first:
        yield first


@contextmanager
def processes(lines: dict[str, list[str]]) -> Iterator[subprocess.Popen[bytes]]:
    """Plain processes by name, as root and in the namespaces of the caller."""
    with _running([], lines, _ROOT) as first:
        yield first


@contextmanager
def _running(place: list[str], lines: dict[str, list[str]], user: int) -> Iterator[subprocess.Popen[bytes]]:
    _cache(user).mkdir(parents=True, exist_ok=True)
    os.chown(_cache(user), user, user)
    code = "import json, sys; from benchmarks.on_gpu import one_pod; one_pod.main_process(json.loads(sys.argv[1]))"
    first = subprocess.Popen([*place, sys.executable, "-c", code, json.dumps(lines)], start_new_session=True)
    try:
        yield first
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()


def _cache(user: int) -> Path:
    """Compiled kernels of a user."""
    return FOLDER / f"cache-{user}"


def _lines() -> dict[str, list[str]]:
    lines = {}
    for gpu, (role, port) in enumerate(PORTS.items()):
        transfer = {"kv_connector": "NixlConnector", "kv_role": f"kv_{role}"}
        arguments = ["--block-size=128", f"--kv-cache-memory-bytes={8 * 2**30}", "--max-num-batched-tokens=8192"]
        lines[role] = container(str(gpu), port, [*arguments, f"--kv-transfer-config={json.dumps(transfer)}"])
    return lines


def wait(pod: subprocess.Popen[bytes], name: str, port: int, seconds: float = 300) -> None:
    """Wait until the vLLM of a container answers.

    Raises:
        SystemExit: It does not.
    """
    end = time.monotonic() + seconds
    while pod.poll() is None and time.monotonic() < end:
        if servers.answers(f"http://{servers.HOST}:{port}/health"):
            return
        time.sleep(0.5)
    raise SystemExit(f"{name} does not answer; its log:\n" + (FOLDER / f"{name}.log").read_text()[-6000:])


def complete(port: int, prompt: list[int], transfer: dict[str, Any]) -> dict[str, Any]:
    """Ask the vLLM at a port for one token."""
    body = {"model": servers.MODEL, "prompt": prompt, "max_tokens": 1, "kv_transfer_params": transfer}
    connection = http.client.HTTPConnection(servers.HOST, port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    answer: dict[str, Any] = json.load(connection.getresponse())
    connection.close()
    return answer


def _nvlink_gigabytes() -> list[float]:
    """What each GPU has sent over its links since the driver counts."""
    report = subprocess.run(["nvidia-smi", "nvlink", "-gt", "d"], capture_output=True, text=True, check=True).stdout
    gpus = re.split(r"^GPU \d+:.*$", report, flags=re.MULTILINE)[1:]
    return [sum(int(kib) for kib in re.findall(r"Data Tx: (\d+) KiB", gpu)) * 1024 / 1e9 for gpu in gpus]


def _measure() -> None:
    before = _nvlink_gigabytes()
    for _ in range(PROMPTS):
        prompt = [random.randrange(3, 30000) for _ in range(TOKENS)]
        answer = complete(PORTS["producer"], prompt, REMOTE_DECODE)
        complete(PORTS["consumer"], prompt, answer["kv_transfer_params"])
    moved = servers.metric(PORTS["consumer"], "vllm:nixl_bytes_transferred_sum") / 1e9
    seconds = servers.metric(PORTS["consumer"], "vllm:nixl_xfer_time_seconds_sum")
    failed = servers.metric(PORTS["consumer"], "vllm:nixl_num_failed_transfers_total")
    sent = [after - start for start, after in zip(before, _nvlink_gigabytes(), strict=True)]
    print(f"vLLM: {moved:.1f} GB from P to D, {moved / seconds:.1f} GB/s, {failed:.0f} failed transfers")
    print(f"NVLink: the GPUs sent {', '.join(f'{gigabytes:.1f}' for gigabytes in sent)} GB")


def main() -> None:
    """Start the pod, send the prompts, and end it."""
    servers.write_model(FOLDER / "model")
    with pod(_lines()) as process:
        for role, port in PORTS.items():
            wait(process, role, port)
        _measure()


if __name__ == "__main__":
    main()
