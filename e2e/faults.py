"""Faults: processes that are killed or stand still, networks that are cut, a server that answers only with errors."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster
from e2e.cluster.cgroups import processes
from e2e.cluster.commands import run
from pdinference.api.engines import PodEngine
from pdinference.api.names import ENGINE_PORT, Role
from pdinference.engine.connectors.nixl import Nixl

_ENGINE = b"VLLM::EngineCore"
"""The title that vLLM gives its process for the model (vllm/v1/engine/core.py)."""
_PAUSE = b"/pause"
"""The process of a pod that has its network namespace and no container."""
_PORT = b"--port="
_TABLE = "fault"
_ERRORS_PORT = 9999
(_SIDE_CHANNEL,) = Nixl().ports(Role.PARAMETER)
_ERRORS = Path(__file__).with_name("error_server.py")

DRAINS = "[shutdown] EngineCore: draining in-flight requests"
"""What vLLM writes at SIGTERM if, and only if, requests are under way in it (vllm/v1/engine/core.py)."""
ENDS = "[shutdown] EngineCore: request processing complete"
"""What vLLM writes when it ends by itself, before its deadline and the kubelet's SIGKILL, busy or not."""


class Packets(StrEnum):
    """What happens to packets where a network is cut."""

    DROP = "drop"
    REJECT = "reject with tcp reset"


class Ports(StrEnum):
    """Connections between P and D."""

    SIDE_CHANNEL = "side channel"
    TRANSFER = "transfer"

    def match(self, side: str) -> str:
        """Their packets, where the side channel's port is P's: `dport` in what P gets, `sport` in what it sends."""
        if self is Ports.SIDE_CHANNEL:
            return f"tcp {side} {_SIDE_CHANNEL.number}"
        others = f"{{ {ENGINE_PORT}, {_SIDE_CHANNEL.number} }}"
        return f"tcp dport != {others} tcp sport != {others}"


class Direction(StrEnum):
    """Which packets get lost."""

    TO_P = "to P"
    FROM_P = "from P"
    BOTH = "to and from P"


def kill_operators(cluster: Cluster, at_most: int = 100) -> int:
    """SIGKILL operators of one cluster, and of no other on this machine; how many comes back."""
    found = sorted(pid for pid in set(processes(cluster.spec)) if b"bin/pdinference\0run" in _command(pid))[:at_most]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def kill(cluster: Cluster, pod: dict[str, Any]) -> None:
    """SIGKILL all containers of a pod, as the kernel does when memory runs out. The kubelet starts them again."""
    for pid in _containers(cluster, pod):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_engine(cluster: Cluster, pod: dict[str, Any], engine: PodEngine) -> None:
    """SIGKILL one of several engines of a pod.

    Raises:
        ValueError: The pod has no such process, or several.
    """
    # The launcher's words contain the commands of all engines.
    (pid,) = (pid for pid in _containers(cluster, pod) if _ports_of(pid) == [engine.port])
    os.kill(pid, signal.SIGKILL)


def kill_rank(cluster: Cluster, pod: dict[str, Any]) -> None:
    """SIGKILL the engine of a pod of an instance on several nodes, with one rank.

    Raises:
        ValueError: The pod has no such process, or several.
    """
    os.kill(_engine(cluster, pod), signal.SIGKILL)


def restarts(pod: dict[str, Any]) -> int:
    """How often the containers of a pod were started again."""
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])


def hang(cluster: Cluster, pod: dict[str, Any]) -> None:
    """Stop the engine of a vLLM pod for good, behind an API server that answers `/health`.

    Raises:
        ValueError: The pod has no such process, or several.
    """
    os.kill(_engine(cluster, pod), signal.SIGSTOP)


def _engine(cluster: Cluster, pod: dict[str, Any]) -> int:
    (engine,) = (pid for pid in _containers(cluster, pod) if _command(pid).startswith(_ENGINE))
    return engine


@contextmanager
def standing_still(cluster: Cluster, pod: dict[str, Any], *, whole: bool = False) -> Iterator[None]:
    """Stop processes of a vLLM pod (SIGSTOP) and let them go on at the end: what is under way stays so meanwhile.

    Args:
        cluster: The cluster.
        pod: The pod.
        whole: Whether all of its processes stop, or only the engine. Then the API server in front of it runs on: it
            takes requests, and notices SIGTERM.

    Raises:
        ValueError: The pod has no such process, or several.
    """
    stopped = _containers(cluster, pod) if whole else [_engine(cluster, pod)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def cut_off(cluster: Cluster, pod: dict[str, Any], *others: dict[str, Any], packets: Packets) -> Iterator[None]:
    """Cut the network between a pod and others, also for connections that exist, until the end of the block."""
    addresses = ", ".join(other["status"]["podIP"] for other in others)
    matched = f"meta l4proto tcp {packets}"
    with _rules(cluster, pod, _incoming(addresses, matched), _outgoing(addresses, matched)):
        yield


@contextmanager
def dropping(
    cluster: Cluster, parameter: dict[str, Any], decode: dict[str, Any], ports: Ports, direction: Direction
) -> Iterator[None]:
    """Drop packets between P and D, of some ports and in some direction, until the end of the block."""
    address = decode["status"]["podIP"]
    to = _incoming(address, f"{ports.match('dport')} {Packets.DROP}")
    back = _outgoing(address, f"{ports.match('sport')} {Packets.DROP}")
    chains = [to] * (direction is not Direction.FROM_P) + [back] * (direction is not Direction.TO_P)
    with _rules(cluster, parameter, *chains):
        yield


@contextmanager
def answering_500(cluster: Cluster, pod: dict[str, Any]) -> Iterator[None]:
    """Have a server in a pod's network answer for vLLM: 200 for probes, 500 for all else.

    Connections that are open are reset. With enough of them, a router would open no new one, which is what gets there.
    """
    server = [sys.executable, str(_ERRORS), str(_ERRORS_PORT)]
    inside = _network_of(cluster, pod)
    with subprocess.Popen([*inside, *server], stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout:
                process.stdout.readline()  # it listens
            engine = f"tcp dport {ENGINE_PORT}"
            with _rules(
                cluster,
                pod,
                f"chain new {{ type nat hook prerouting priority -100; {engine} redirect to :{_ERRORS_PORT}\n}}",
                f"chain open {{ type filter hook input priority 0; {engine} reject with tcp reset\n}}",
            ):
                yield
        finally:
            process.terminate()


@contextmanager
def lost_node(cluster: Cluster, node: str) -> Iterator[None]:
    """Cut a node off from everything, as when its switch fails, until the end of the block."""
    (found,) = (one for one in cluster.spec.node_specs if one.name == node)
    link = ["ip", "-netns", cluster.spec.netns, "link", "set", found.short_name]  # the other end would lose its routes
    run([*link, "down"])
    try:
        yield
    finally:
        run([*link, "up"])


def _incoming(addresses: str, packets: str) -> str:
    """A chain for what a pod gets from some addresses."""
    return f"chain in {{ type filter hook input priority 0; ip saddr {{ {addresses} }} {packets}\n}}"


def _outgoing(addresses: str, packets: str) -> str:
    """A chain for what it sends to them."""
    return f"chain out {{ type filter hook output priority 0; ip daddr {{ {addresses} }} {packets}\n}}"


@contextmanager
def _rules(cluster: Cluster, pod: dict[str, Any], *chains: str) -> Iterator[None]:
    nft = [*_network_of(cluster, pod), "nft"]
    run([*nft, "-f", "-"], stdin="\n".join([f"table ip {_TABLE} {{", *chains, "}"]))
    try:
        yield
    finally:
        run([*nft, "delete", "table", "ip", _TABLE])


def _network_of(cluster: Cluster, pod: dict[str, Any]) -> list[str]:
    """Runs a command in the network of a pod, which outlives its containers."""
    (pause,) = (pid for pid in _of(cluster, pod) if _command(pid).startswith(_PAUSE))
    return ["nsenter", f"--net=/proc/{pause}/ns/net", "--"]


def _containers(cluster: Cluster, pod: dict[str, Any]) -> list[int]:
    return [pid for pid in _of(cluster, pod) if not _command(pid).startswith(_PAUSE)]


def _of(cluster: Cluster, pod: dict[str, Any]) -> list[int]:
    """All processes of a pod."""
    return sorted(
        pid for pid in set(processes(cluster.spec)) if pod["metadata"]["uid"] in _read(pid, "cgroup").decode()
    )


def _ports_of(pid: int) -> list[int]:
    """The ports in the command line of an engine or a launcher."""
    words = _command(pid).split(b"\0")
    return [int(word.removeprefix(_PORT)) for word in words if word.startswith(_PORT)]


def _command(pid: int) -> bytes:
    return _read(pid, "cmdline")


def _read(pid: int, file: str) -> bytes:
    """A file of a process in /proc; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
