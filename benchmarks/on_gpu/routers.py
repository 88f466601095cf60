"""Both routers in front of the same servers."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.on_gpu.servers import FOLDER, HOST, PORTS, answers
from benchmarks.processes import ports


@dataclass(frozen=True)
class Router:
    """A router that runs.

    Attributes:
        port: For clients.
        state_port: For metrics.
    """

    port: int
    state_port: int
    process: subprocess.Popen[bytes]


@contextmanager
def routers(decode: list[str], *extra: str) -> Iterator[dict[str, Router]]:
    """Ours and vllm-router, with the options that the operator and benchmarks.routers give them.

    Args:
        decode: The D servers; P is always there.
        extra: Further options of ours.
    """
    ours = [sys.executable, "-c", "from pdinference.cli import main; main()", "router", "run", *extra]
    theirs = [sys.executable, "-m", "vllm_router.launch_router", "--vllm-pd-disaggregation", "--kv-connector=nixl"]
    theirs += ["--policy=round_robin", "--decode-policy=kv_aware", "--log-level=error", f"--host={HOST}"]
    ours += [f"--host={HOST}", f"--parameter={HOST}:{PORTS['p']}", *(f"--decode={HOST}:{PORTS[d]}" for d in decode)]
    theirs += [f"--prefill=http://{HOST}:{PORTS['p']}", *(f"--decode=http://{HOST}:{PORTS[d]}" for d in decode)]
    found = {}
    try:
        for name, line in (("pdinference", ours), ("vllm-router", theirs)):
            port, state = ports(2)
            line += [f"--port={port}", f"--{'state' if name == 'pdinference' else 'prometheus'}-port={state}"]
            with (FOLDER / f"{name}.log").open("ab") as log:
                found[name] = Router(port, state, subprocess.Popen(line, stdout=log, stderr=log))
        _wait(f"http://{HOST}:{found['pdinference'].state_port}/readyz")
        _wait(f"http://{HOST}:{found['vllm-router'].port}/readiness")
        yield found
    finally:
        for one in found.values():
            one.process.terminate()


def _wait(url: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if answers(url):
            return
        time.sleep(0.2)
    raise SystemExit(f"{url} does not answer")
