"""The nodes of an instance start, drain and end together: real processes, with a stand-in for vLLM."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pdinference.api.names import GROUP_BROKEN_EXIT
from pdinference.engine.command import script
from tests.engine.scripts.started import Started
from tests.ports import free_port

SERVER = """
import signal, sys, time
def drained(*_):
    print("drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, drained)
print("serving", flush=True)
time.sleep(600)
"""
"""Stands in for vLLM: serves until SIGTERM, then finishes what it has and ends well."""

Start = Callable[..., "Node"]


class Node(Started):
    """The program on one node."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("group_member", *arguments)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(port: int) -> Iterator[Start]:
    """Start a node of an instance of three."""
    started: list[Node] = []

    def node(rank: int, *, notice: float = 0, program: str = SERVER, options: Sequence[str] = ()) -> Node:
        arguments = (rank, 3, "127.0.0.1", port, notice, sys.executable, "-c", program, *options)
        started.append(Node(*map(str, arguments)))
        return started[-1]

    yield node
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)  # with what it runs, as the end of a container would
        each.process.wait()


@pytest.fixture
def together(start: Start) -> list[Node]:
    """Three nodes that serve."""
    nodes = [start(rank) for rank in range(3)]
    for node in nodes:
        node.says("serving")
    return nodes


def test_vllm_starts_only_when_all_nodes_are_there(start: Start) -> None:
    early = [start(2), start(0)]
    early[1].says("Waiting for the other 2 of 3 nodes")
    late = start(1)
    for node in (*early, late):
        node.says("serving")


def test_a_node_that_goes_before_the_others_are_there_may_come_back(start: Start) -> None:
    first = [start(0), start(1)]
    first[0].says("Waiting")
    first[1].process.kill()
    first[1].ends()
    for node in (first[0], start(1), start(2)):
        node.says("serving")


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_when_one_node_dies_all_end_and_say_why(together: list[Node], rank: int) -> None:
    together[rank].process.kill()
    for other in (node for node in together if node is not together[rank]):
        assert other.ends() == GROUP_BROKEN_EXIT
        other.says("start anew")
        assert "drained" not in other.lines


def test_when_vllm_ends_by_itself_its_exit_code_counts_and_all_end(start: Start) -> None:
    failing = start(1, program="import sys; print('serving', flush=True); sys.exit(7)")
    others = [start(0), start(2)]
    assert failing.ends() == 7
    assert [other.ends() for other in others] == [GROUP_BROKEN_EXIT] * 2


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_when_one_pod_ends_node_0_drains_before_the_others_end(together: list[Node], rank: int) -> None:
    together[rank].process.send_signal(signal.SIGTERM)
    assert together[0].ends() == 0
    assert "drained" in together[0].lines
    codes = [node.ends() for node in together[1:]]
    assert codes == [0 if rank == number else GROUP_BROKEN_EXIT for number in (1, 2)]
    assert not any("drained" in node.lines for node in together[1:])


WAITS_FOR_D = """
import pathlib, signal, sys, time
def drained(*_):
    print("draining", flush=True)
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.01)
    print("drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, drained)
print("serving", flush=True)
time.sleep(600)
"""
"""Stands in for a vLLM with KV cache that D reads when a file is there."""


@pytest.mark.parametrize("leaves", [0, 1])
def test_nodes_with_ranks_of_their_own_drain_after_node_0_which_waits(
    start: Start, tmp_path: Path, leaves: int
) -> None:
    options = ("--data-parallel-size-local=2", str(tmp_path / "read"))
    nodes = [start(0, options=options), *(start(rank, program=WAITS_FOR_D, options=options) for rank in (1, 2))]
    for node in nodes:
        node.says("serving")
    nodes[leaves].process.send_signal(signal.SIGTERM)
    nodes[0].says("drained")
    for node in nodes[1:]:
        node.says("draining")
    with pytest.raises(subprocess.TimeoutExpired):
        nodes[0].process.wait(1)
    (tmp_path / "read").touch()
    codes = [node.ends() for node in nodes]
    assert codes == [0, *(0 if rank == leaves else GROUP_BROKEN_EXIT for rank in (1, 2))]
    for node in nodes:
        assert "drained" in node.lines


def test_a_node_that_dies_while_it_drains_is_not_waited_for(start: Start, tmp_path: Path) -> None:
    options = ("--data-parallel-size-local=2", str(tmp_path / "never"))
    nodes = [start(0, options=options), *(start(rank, program=WAITS_FOR_D, options=options) for rank in (1, 2))]
    for node in nodes:
        node.says("serving")
    nodes[0].process.send_signal(signal.SIGTERM)
    for node in nodes[1:]:
        node.says("draining")
        node.process.kill()
    assert nodes[0].ends() == 0


def test_when_all_pods_have_to_go_node_0_keeps_serving_for_the_notice(start: Start) -> None:
    nodes = [start(0, notice=600), start(1), start(2)]
    for node in nodes:
        node.says("serving")
    for node in nodes[1:]:
        node.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        nodes[0].process.wait(1)
    nodes[0].process.send_signal(signal.SIGTERM)
    assert [node.ends() for node in nodes] == [0, 0, 0]


def test_a_node_that_waits_for_the_others_goes_when_told(start: Start) -> None:
    waiting = [start(0), start(1)]
    for node in waiting:
        node.says("Waiting")
    for node in waiting:
        node.process.send_signal(signal.SIGTERM)
    assert waiting[0].ends() == 0
    assert waiting[1].ends() == 0


def test_a_stranger_is_not_taken_for_a_node(start: Start, port: int) -> None:
    leader = start(0)
    leader.says("Waiting")
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"7\n", b""):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(words)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""
    for node in (leader, start(1), start(2)):
        node.says("serving")


def test_nothing_but_the_standard_library_is_needed() -> None:
    imported = {
        line.split()[1].split(".")[0]
        for line in script("group_member").splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imported <= sys.stdlib_module_names
