"""Processes on this machine for a benchmark, and ports for them."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"


def ports(count: int) -> list[int]:
    """Free ports."""
    servers = [socket.create_server((HOST, 0)) for _ in range(count)]
    found = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return found


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until the end of the block; its errors are shown."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()
