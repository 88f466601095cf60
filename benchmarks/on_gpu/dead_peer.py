"""P or D killed by SIGKILL under load, and started anew: `python3 -m benchmarks.on_gpu.dead_peer p` (root, two GPUs).

vLLMs of Qwen2.5-7B's shape, a GPU each, with the options that `pdinference render` prints for HostLocal, and eager.
Prints what is in use on the GPU of the dead engine, whether and how fast a new one starts, and the speed of transfers.
`--releasing` takes the connector of the path HostLocal (engine/scripts/pdinference_nixl.py), or `--push` lets P push.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Final

from benchmarks.on_gpu import one_pod, servers

_GPUS: Final = {"p": 0, "d": 1}
_PORTS: Final = {"p": 8100, "d": 8101}
_OPTIONS: Final = {
    "p": ["--max-num-batched-tokens=8192"],
    "d": ["--max-num-batched-tokens=2048"],
}
SHAPE: Final[dict[str, Any]] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
}
TOKENS: Final = 8000
_ANSWER: Final = 8
_CLIENTS: Final = 3
_LOAD_SECONDS: Final = 5.0
_WATCHED: Final = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
_MODULES: Final = "operator/pdinference/engine/scripts"
FAILURES: Final = (OSError, http.client.HTTPException, ValueError)
"""What a request to a dead engine raises."""
_START_SECONDS: Final = 170.0
_UTILIZATION: Final = 0.92
_SPARE_GIB: Final = 1.2
_COUNTERS: Final = (
    "vllm:nixl_bytes_transferred_sum",
    "vllm:nixl_xfer_time_seconds_sum",
    "vllm:nixl_num_failed_transfers_total",
)


def gibibytes(what: str) -> list[float]:
    """`memory.used` or `memory.total` of each GPU."""
    line = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    report = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    return [round(int(mebibytes) / 1024, 2) for mebibytes in report.split()]


class Engine:
    """A vLLM, with its log in a file."""

    def __init__(self, role: str, choices: argparse.Namespace, utilization: float = _UTILIZATION) -> None:
        self.role = role
        name = "NixlPushConnector" if choices.push else "NixlConnector"
        kind = {"p": "kv_producer", "d": "kv_consumer"}[role]
        transfer = {"kv_connector": name, "kv_role": kind, "kv_load_failure_policy": "recompute"}
        if choices.releasing:
            transfer["kv_connector_module_path"] = "pdinference_nixl"
        options = ["--block-size=128", "--max-model-len=16384", "--enforce-eager", *_OPTIONS[role]]
        options += [f"--gpu-memory-utilization={utilization:.2f}", f"--kv-transfer-config={json.dumps(transfer)}"]
        variables = dict(one.split("=", 1) for one in choices.variable)
        search = {"PYTHONPATH": os.pathsep.join([_MODULES, os.environ.get("PYTHONPATH", "")])}
        line = one_pod.process(str(_GPUS[role]), _PORTS[role], options, variables=search | variables)
        path = one_pod.FOLDER / f"{role}.log"
        self._began = time.monotonic()
        with path.open("wb") as log:
            self._process = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
        self._log = path

    def is_ready(self) -> bool:
        """Wait for its health, and print the seconds, or why it ended."""
        while time.monotonic() < self._began + _START_SECONDS and self._process.poll() is None:
            if servers.answers(f"http://{servers.HOST}:{_PORTS[self.role]}/health"):
                print(f"{self.role} is ready after {time.monotonic() - self._began:.0f} s", self._said("KV cache size"))
                return True
            time.sleep(0.3)
        print(f"{self.role} did not start:", self._said("ValueError: Free memory|Error: "))
        self.kill()
        return False

    def kill(self) -> None:
        """SIGKILL to all processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def print_released(self) -> None:
        """What the connector of HostLocal has logged."""
        print(f"{self.role}:", self._said("Released|Removed engine", 6))

    def _said(self, words: str, most: int = 1) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join([line[-200:] for line in lines if re.search(words, line)][-most:])


def post(port: int, body: dict[str, Any], name: str) -> dict[str, Any]:
    """The answer of an engine to a request with a name."""
    connection = http.client.HTTPConnection(servers.HOST, port, timeout=60)
    try:
        # P that pushes finds the registration of D by the name of the request.
        headers = {"content-type": "application/json", "x-request-id": name}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer: dict[str, Any] = json.load(connection.getresponse())
        return answer
    finally:
        connection.close()


def _ask() -> str:
    """One request by way of P, or of D alone if P does not answer."""
    prompt = [random.randrange(3, 150000) for _ in range(TOKENS)]
    body = {"model": servers.MODEL, "prompt": prompt, "temperature": 0, "ignore_eos": True}
    name, given = f"{random.randrange(10**12)}", None
    with suppress(*FAILURES):
        asked = body | {"max_tokens": 1, "kv_transfer_params": one_pod.REMOTE_DECODE}
        given = post(_PORTS["p"], asked, name).get("kv_transfer_params")
    try:
        answer = post(
            _PORTS["d"], body | {"max_tokens": _ANSWER} | ({"kv_transfer_params": given} if given else {}), name
        )
    except FAILURES as error:
        time.sleep(0.2)
        return f"failed: {type(error).__name__}"
    whole = answer.get("usage", {}).get("completion_tokens") == _ANSWER
    return f"{'whole' if whole else 'not whole'}, {'with P' if given else 'D alone'}"


class Load:
    """Clients that ask again and again.

    Attributes:
        outcomes: The requests by outcome.
    """

    def __init__(self, ask: Callable[[], str], clients: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._ask = ask
        self._going = True
        self._threads = [Thread(target=self._run, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def end(self) -> dict[str, int]:
        """The requests by outcome."""
        self._going = False
        for thread in self._threads:
            thread.join(70)
        return dict(self.outcomes)

    def _run(self) -> None:
        while self._going:
            self.outcomes[self._ask()] += 1


def hand_over(choices: argparse.Namespace, count: int = 8) -> None:
    """Requests one after the other, and the speed that vLLM counted for their transfers."""
    port = _PORTS["p" if choices.push else "d"]
    before = [servers.metric(port, name) for name in _COUNTERS]
    outcomes = Counter(_ask() for _ in range(count))
    time.sleep(0.5)
    after = [servers.metric(port, name) for name in _COUNTERS]
    moved, seconds, failed = (end - start for start, end in zip(before, after, strict=True))
    speed = moved / 1e9 / seconds if seconds else 0.0
    print(
        f"hand-over: {dict(outcomes)}, {moved / 1e9:.1f} GB at {speed:.1f} GB/s, {failed:.0f} failed; GiB used:",
        end=" ",
    )
    print(gibibytes("memory.used"))


def die(engines: dict[str, Engine], victim: str, choices: argparse.Namespace) -> bool:
    """Kill an engine amid load, start it anew, and say whether it came back with all memory."""
    load, gpu = Load(_ask, _CLIENTS), _GPUS[victim]
    time.sleep(_LOAD_SECONDS)
    before = gibibytes("memory.used")[gpu]
    engines[victim].kill()
    killed, series = time.monotonic(), []
    for after in _WATCHED:
        time.sleep(max(0.0, killed + after - time.monotonic()))
        series.append((after, gibibytes("memory.used")[gpu]))
    print(f"{victim} was killed; used on its GPU: {before} GiB, and (s, GiB) after it: {series}")
    engines[victim] = Engine(victim, choices)
    back = engines[victim].is_ready()
    print("requests meanwhile:", load.end())
    return back


def main() -> None:
    """Start a pair, let one engine die as often as it is told to, and end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("victims", nargs="+", choices=["p", "d"], help="which dies, one after the other")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--push", action="store_true")
    way.add_argument("--releasing", action="store_true", help="the connector that lets go of dead peers, which pulls")
    parser.add_argument("--small", action="store_true", help="start with what is free, if all memory is not")
    parser.add_argument("--variable", action="append", default=[], help="NAME=value, for both engines")
    choices = parser.parse_args()
    servers.write_model(one_pod.FOLDER / "model", **SHAPE)
    engines = {role: Engine(role, choices) for role in _GPUS}
    if all([engine.is_ready() for engine in engines.values()]):  # noqa: C419 - each prints
        hand_over(choices)
        for victim in choices.victims:
            if not die(engines, victim, choices):
                if not choices.small:
                    break
                total, used = (gibibytes(f"memory.{what}")[_GPUS[victim]] for what in ("total", "used"))
                engines[victim] = Engine(victim, choices, int((total - used - _SPARE_GIB) / total * 100) / 100)
                if not engines[victim].is_ready():
                    break
            hand_over(choices)
    for engine in engines.values():
        if choices.releasing:
            engine.print_released()
        engine.kill()
        time.sleep(1.5)
        print(f"{engine.role} was ended; GiB used:", gibibytes("memory.used"))


if __name__ == "__main__":
    main()
