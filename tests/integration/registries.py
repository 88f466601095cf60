"""A real registry for one test, spoken to without TLS."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster.build import binary
from e2e.cluster.waiting import wait_until
from tests.ports import free_port


@contextmanager
def serving() -> Iterator[str]:
    """Its address."""
    address = f"127.0.0.1:{free_port()}"
    with subprocess.Popen([binary("crane"), "registry", "serve", f"--address={address}"]) as process:
        try:
            wait_until("the registry", lambda: answers(address), timeout=60)
            yield address
        finally:
            process.terminate()


def answers(address: str) -> bool:
    """Whether something listens there."""
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
