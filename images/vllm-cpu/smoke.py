"""Serve the tiny model as a pod would, and ask it something: the last step of the image's build.

The build fails here when a package is missing, when slim.py removed too much, when a patch broke something, or when the
`vllm` command does not work. It also leaves in the image the bytecode of exactly the modules that a server imports: a
container with a read-only root file system could not write it, and would compile everything again at every start.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

MODEL: Final = "/models/tiny"
PORT: Final = 8000
START_SECONDS: Final = (
    1800  # a hundred times what it takes: a machine that is busy with other things is no fault of the image
)
STOP_SECONDS: Final = 600
PROMPT: Final = "a" * 300  # more than one block of the KV cache
ANSWER_TOKENS: Final = 8
# As a pod with tiers of the KV cache has it.
TIERS: Final = {
    "cpu_bytes_to_use": 16 * 2**20,
    "spec_name": "TieringOffloadingSpec",
    "secondary_tiers": [{"type": "fs", "root_dir": "/tmp/tier"}],  # noqa: S108 - in the image's build, and removed
}
CONNECTORS: Final = (
    {"kv_connector": "NixlConnector", "kv_role": "kv_producer", "kv_buffer_device": "cpu"},
    {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": TIERS},
)
TRANSFER: Final = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_producer",
    "kv_connector_extra_config": {"connectors": CONNECTORS},
}
COMMAND: Final = (
    "vllm",
    "serve",
    MODEL,
    "--served-model-name=tiny",
    "--host=127.0.0.1",
    f"--port={PORT}",
    "--dtype=float32",
    "--enforce-eager",
    "--max-model-len=2048",
    "--shutdown-timeout=5",
    f"--kv-transfer-config={json.dumps(TRANSFER)}",
)
ENVIRONMENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "UCX_TLS": "tcp,self",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}


def request(method: str, path: str, body: object = None) -> str:
    """Send one request to the server and return the answer.

    Args:
        method: The HTTP method.
        path: The URL's path.
        body: What to send as JSON.

    Raises:
        OSError: Nobody listens yet.
        SystemExit: The answer is an error.
    """
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=600)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise SystemExit(f"{path} answered {response.status}: {text}")
    return text


def wait_until_serving(server: subprocess.Popen[bytes]) -> None:
    """Wait for the server's health endpoint.

    Args:
        server: The process; when it ends early, there is nothing to wait for.

    Raises:
        SystemExit: It ended, or took too long.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"vLLM ended with {server.returncode} before it served")
        try:
            request("GET", "/health")
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise SystemExit(f"vLLM did not serve within {START_SECONDS} s")


def expect_fork(server: subprocess.Popen[bytes]) -> None:
    """Expect that the process of the model is a fork of the server, and has not imported vLLM again.

    Args:
        server: The process that serves.

    Raises:
        SystemExit: It was spawned: Python then starts a helper process, its resource tracker.
    """
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii").split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    if not commands or any(b"multiprocessing." in command for command in commands):
        raise SystemExit(f"the process of the model was spawned and not forked: {commands}")


def main() -> None:
    """Run the server, one completion and one chat, and stop it."""
    server = subprocess.Popen(COMMAND, env={**os.environ, **ENVIRONMENT})  # noqa: S603 - a constant, no shell
    try:
        wait_until_serving(server)
        expect_fork(server)
        completion = {"model": "tiny", "prompt": PROMPT, "max_tokens": ANSWER_TOKENS, "ignore_eos": True, "logprobs": 1}
        answer = json.loads(request("POST", "/v1/completions", completion))
        usage = answer["usage"]
        if (usage["prompt_tokens"], usage["completion_tokens"]) != (len(PROMPT), ANSWER_TOKENS):
            raise SystemExit(f"wrong number of tokens: {usage}")
        # PyTorch compiles a function for these, unless it may not, and the image has no compiler.
        if len(answer["choices"][0]["logprobs"]["token_logprobs"]) != ANSWER_TOKENS:
            raise SystemExit(f"wrong number of log-probabilities: {answer['choices']}")
        request(
            "POST",
            "/v1/chat/completions",
            {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": ANSWER_TOKENS},
        )
        metrics = request("GET", "/metrics")
        if "vllm:nixl_num_failed_transfers_total" not in metrics:
            raise SystemExit("the NIXL connector reports no metrics: is it loaded?")
        if not re.search(r"^vllm:kv_offload_store_bytes_total\{.*\} [1-9]", metrics, re.MULTILINE):
            raise SystemExit("no block of the KV cache went to the tiers")
        server.send_signal(signal.SIGTERM)
        server.wait(STOP_SECONDS)
    finally:
        server.kill()
    sys.stdout.write("smoke test passed: vLLM serves the tiny model with NIXL and tiers of the KV cache\n")


if __name__ == "__main__":
    main()
