"""Fake servers for the routers."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.processes import HOST, ports


@contextmanager
def fakes(count: int, *options: str) -> Iterator[list[int]]:
    """Ports of servers in one process."""
    places = ports(count)
    with started(places, *options):
        yield places


@contextmanager
def started(places: list[int], *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process of servers at these ports, which answer."""
    line = [sys.executable, "-m", "benchmarks.fake_vllm", *map(str, places), *options]
    process = subprocess.Popen(line)
    try:
        for port in places:
            _wait(port)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)  # a fault may have stopped it
        process.kill()
        process.wait()


def counts(port: int) -> dict[str, Any]:
    """What a server counted."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/fake/counts", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def fail(port: int, fault: str) -> None:
    """Let a server fail its requests from now on (`benchmarks.fake_vllm.FAULTS`)."""
    query = urllib.parse.urlencode({"kind": fault})
    with urllib.request.urlopen(f"http://{HOST}:{port}/fake/fault?{query}", b"", timeout=10):
        return


def _wait(port: int) -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"the fake server at port {port} does not answer")
