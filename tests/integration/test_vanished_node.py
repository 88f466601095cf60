"""A node of an instance disappears with its kernel: no FIN or RST. Real TCP between network namespaces."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from e2e.console import say
from pdinference.api.names import GROUP_BROKEN_EXIT
from pdinference.engine.command import script

_PORT = 29600
_ADDRESSES = ("198.51.100.1", "198.51.100.2")  # RFC 5737; they exist only in the namespaces of this test
_FAR_BELOW_DEFAULTS_SECONDS = 90
"""Without keepalive a silent connection stays forever; with the kernel's own settings of it, for two hours."""

_KEEPALIVE_IDLE_SECONDS = 10
"""Of the script: a node that the other end told of its end would end at once."""


class Network(NamedTuple):
    """Two namespaces and a switch between them."""

    switch: str
    nodes: tuple[str, str]

    def cut(self, rank: int) -> None:
        """Unplug one node from the switch; its own link stays up."""
        ip(self.switch, "link", "set", f"node{rank}", "nomaster")


def ip(namespace: str, *words: str) -> None:
    subprocess.run(["ip", "-netns", namespace, *words], check=True)


@pytest.fixture
def network() -> Iterator[Network]:
    prefix = f"vanish{os.getpid()}"
    found = Network(f"{prefix}s", (f"{prefix}n0", f"{prefix}n1"))
    with contextlib.ExitStack() as stack:
        for name in (found.switch, *found.nodes):
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=True)
        ip(found.switch, "link", "add", "bridge", "type", "bridge")
        ip(found.switch, "link", "set", "bridge", "up")
        for rank, name in enumerate(found.nodes):
            peer = ("peer", "name", f"node{rank}", "netns", found.switch)
            ip(name, "link", "add", "eth0", "type", "veth", *peer)
            ip(found.switch, "link", "set", f"node{rank}", "master", "bridge", "up")
            ip(name, "address", "add", f"{_ADDRESSES[rank]}/24", "dev", "eth0")
            ip(name, "link", "set", "eth0", "up")
        yield found


@contextlib.contextmanager
def member(network: Network, rank: int) -> "Iterator[subprocess.Popen[str]]":
    """One node of an instance of two, with a stand-in for vLLM."""
    serve = "import time; print('serving', flush=True); time.sleep(600)"
    arguments = (str(rank), "2", _ADDRESSES[0], str(_PORT), "0", sys.executable, "-c", serve)
    words = ["nsenter", f"--net=/run/netns/{network.nodes[rank]}", sys.executable, "-I", "-c", script("group_member")]
    process = subprocess.Popen(
        [*words, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what it runs, as the end of a container would
        process.wait()


def serves(process: "subprocess.Popen[str]") -> None:
    """Wait until vLLM runs; a process that writes nothing more is ended by the test's time-out."""
    assert process.stdout is not None
    assert any("serving" in line for line in process.stdout)


@pytest.mark.timeout(180)
def test_a_node_that_vanishes_is_noticed_by_both_ends(network: Network) -> None:
    with member(network, 0) as first, member(network, 1) as second:
        for process in (first, second):
            serves(process)
        cut_at = time.monotonic()
        network.cut(1)
        ends: dict[int, float] = {}

        def end(rank: int, process: "subprocess.Popen[str]") -> None:
            process.wait()
            ends[rank] = time.monotonic() - cut_at

        waiting = [threading.Thread(target=end, args=each, daemon=True) for each in enumerate((first, second))]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(max(0.0, cut_at + _FAR_BELOW_DEFAULTS_SECONDS - time.monotonic()))
        assert [first.poll(), second.poll()] == [GROUP_BROKEN_EXIT] * 2
        say(f"noticed after {ends[0]:.1f} s by node 0 and {ends[1]:.1f} s by node 1")
        assert min(ends.values()) > _KEEPALIVE_IDLE_SECONDS, "it was silence that ended them, not a word of the other"
