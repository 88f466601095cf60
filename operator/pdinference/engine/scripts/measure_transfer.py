"""Measure how fast KV cache gets from one pod to another: `pdinference doctor --bandwidth`.

Two pods run it, one in the place of P and one in that of D, or one container in the place of both. P and D register
memory with NIXL in the shape of the real KV cache, with the threads and the backend of vLLM's connector. D pulls
(READ), then P pushes (WRITE), one transfer and several at a time. Contents are compared after each case. D writes the
result to its termination message.

Argument: the settings as JSON (`Settings`).
"""

import base64
import contextlib
import ctypes
import json
import os
import re
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Any

UCX_LOG = "/tmp/ucx-{}.log"  # noqa: S108 - /tmp is a volume of the pod
"""With the process id: P and D may share the volume."""
RESULT = "/dev/termination-log"
_THREADS = 4
"""UCX workers of vLLM's connector (`num_threads`)."""
_LONGEST_LINE = 16 * 2**20
"""The metadata of an agent grows with its registered memory."""
_SILENCE_S = 10.0
_RETRY_S = 0.5
_UNLIMITED = -1
_LANES = re.compile(r"\(([^()]+)\)")
"""In a line of UCX's log: `rma_am(tcp/eth0)  am(tcp/eth0 cma/memory)`."""

Json = dict[str, Any]


class Settings:
    """What is measured.

    Attributes:
        token: Shared by the two pods of a run. Other connections are dropped.
        peer: Address of P; empty for P itself.
        variables: Variables of each role, if both share this container, and thus have their own part of its devices.
        gpu: Whether the KV cache is in the memory of a GPU.
        regions: Registered pieces of memory: K and V of each layer.
        block: Bytes of a block of one region.
        blocks: Blocks of a transfer.
        at_once: Numbers of simultaneous transfers.
        seconds: Duration of each case.
        limit: Seconds until P or D gives up.
    """

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.token: str = given["token"]
        self.peer: str = given["peer"]
        self.variables: dict[str, dict[str, str]] = given["variables"]
        self.port: int = given["port"]
        self.gpu: bool = given["gpu"]
        self.regions: int = given["regions"]
        self.block: int = given["block"]
        self.blocks: int = given["blocks"]
        self.at_once: list[int] = given["atOnce"]
        self.seconds: float = given["seconds"]
        self.limit: float = given["limit"]


class Link:
    """Lines of JSON between the two pods."""

    def __init__(self, connection: socket.socket, limit: float) -> None:
        connection.settimeout(limit)
        self._file = connection.makefile("rwb")

    def send(self, message: Json) -> None:
        """Send a message."""
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()

    def receive(self) -> Json:
        """Wait for the next message.

        Raises:
            ConnectionError: The other pod has ended.
        """
        line = self._file.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionError("the other pod ended the connection")
        message: Json = json.loads(line)
        return message


class Cache:
    """Memory in the shape of a KV cache, registered with NIXL, and transfers to or from the other pod."""

    def __init__(self, name: str, settings: Settings) -> None:
        from nixl._api import nixl_agent, nixl_agent_config  # noqa: PLC0415 - UCX reads its variables at import

        self._settings = settings
        self._kind = "VRAM" if settings.gpu else "DRAM"
        self._deadline = time.monotonic() + settings.limit
        self._blocks = settings.blocks * max(settings.at_once)
        self._memory = _allocate((settings.regions, self._blocks, settings.block), gpu=settings.gpu)
        self._address: int = self._memory.data_ptr() if settings.gpu else self._memory.ctypes.data
        self._agent = nixl_agent(name, nixl_agent_config(num_threads=_THREADS))
        region = self._blocks * settings.block
        regions = [(self._address + n * region, region, 0, "") for n in range(settings.regions)]
        self._agent.register_memory(self._agent.get_reg_descs(regions, self._kind), backends=["UCX"])

    def about(self) -> Json:
        """What the other pod needs to reach this memory."""
        return {"metadata": base64.b64encode(self._agent.get_agent_metadata()).decode(), "address": self._address}

    def connect(self, other: Json) -> None:
        """Get to know the memory of the other pod."""
        name = self._agent.add_remote_agent(base64.b64decode(other["metadata"]))
        self._local = self._agent.prep_xfer_dlist("NIXL_INIT_AGENT", self._descriptors(self._address))
        self._remote = self._agent.prep_xfer_dlist(name, self._descriptors(other["address"]))

    def fill(self, value: int) -> None:
        """Write a value to each byte."""
        self._memory[:] = value
        self._synchronize()

    def holds(self, value: int, at_once: int) -> bool:
        """Whether each byte has the value that so many simultaneous transfers should have written."""
        return bool((self._memory[:, : at_once * self._settings.blocks] == value).all())

    def measure(self, operation: str, at_once: int) -> Json:
        """Repeat transfers for some seconds. The first ones set up connections, and count for themselves."""
        size = self._settings.regions * self._settings.blocks * self._settings.block * at_once
        indices = [self._indices(n) for n in range(at_once)]
        first = self._transfer(operation, indices)
        rounds, seconds = 0, 0.0
        while rounds == 0 or seconds < self._settings.seconds:
            seconds += self._transfer(operation, indices)
            rounds += 1
        return {"first": size / first, "speed": size * rounds / seconds, "transfers": rounds * at_once}

    def _transfer(self, operation: str, indices: list[list[int]]) -> float:
        """Seconds until simultaneous transfers are complete."""
        begin = time.monotonic()
        handles = [self._agent.make_prepped_xfer(operation, self._local, each, self._remote, each) for each in indices]
        for handle in handles:
            self._agent.transfer(handle)
        pending = list(handles)
        while pending:
            states = [self._agent.check_xfer_state(handle) for handle in pending]
            if "ERR" in states:
                raise RuntimeError(f"NIXL's {operation} failed")
            pending = [handle for handle, state in zip(pending, states, strict=True) if state != "DONE"]
            if time.monotonic() > self._deadline:
                raise TimeoutError(f"NIXL's {operation} was not complete after {self._settings.limit:.0f} s")
        seconds = time.monotonic() - begin
        for handle in handles:
            self._agent.release_xfer_handle(handle)
        return seconds

    def _descriptors(self, address: int) -> Any:
        block = self._settings.block
        blocks = [(address + n * block, block, 0) for n in range(self._settings.regions * self._blocks)]
        return self._agent.get_xfer_descs(blocks, self._kind)

    def _indices(self, number: int) -> list[int]:
        """The blocks of one of several simultaneous transfers, in all regions."""
        begin = number * self._settings.blocks
        return [
            region * self._blocks + block
            for region in range(self._settings.regions)
            for block in range(begin, begin + self._settings.blocks)
        ]

    def _synchronize(self) -> None:
        if self._settings.gpu:
            import torch  # noqa: PLC0415 - takes seconds, and is not needed without GPUs

            torch.cuda.synchronize()


def facts(*, gpu: bool) -> Json:
    """What this pod sees of its node."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {
        "memlockBytes": _UNLIMITED if limit == resource.RLIM_INFINITY else limit,
        "rdmaDevices": _names("/sys/class/infiniband", "*"),
        "rdmaDeviceFiles": _names("/dev/infiniband", "uverbs*"),
        "nvidiaDeviceFiles": _names("/dev", "nvidia[0-9]*"),
        "imexChannels": _names("/dev/nvidia-caps-imex-channels", "channel*"),
        "gpus": _gpus() if gpu else [],
        "interfaces": _names("/sys/class/net", "*"),
        "pidNamespace": str(Path("/proc/self/ns/pid").readlink()),
        "dns": _resolves("kubernetes.default.svc"),
    }


def lanes(log: str) -> list[str]:
    """Transports with their devices that UCX chose to reach another process, from its log."""
    groups = [group for line in log.splitlines() if " cfg#" in line for group in _LANES.findall(line)]
    return sorted({lane for group in groups for lane in group.split() if "/" in lane})[:16]


def _flush_ucx_log() -> None:
    ctypes.CDLL(None).fflush(None)  # UCX writes through a buffer of the C library


def _ucx_log() -> str:
    _flush_ucx_log()
    return Path(UCX_LOG.format(os.getpid())).read_text(encoding="utf-8", errors="replace")


def _allocate(shape: tuple[int, int, int], *, gpu: bool) -> Any:
    if gpu:
        import torch  # noqa: PLC0415 - as above

        return torch.zeros(shape, dtype=torch.uint8, device="cuda:0")
    import numpy as np  # noqa: PLC0415 - NIXL needs it

    return np.zeros(shape, dtype=np.uint8)


def _gpus() -> list[str]:
    import torch  # noqa: PLC0415 - as above

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def _names(folder: str, pattern: str) -> list[str]:
    return sorted(path.name for path in Path(folder).glob(pattern))[:16]


def _resolves(host: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(socket.getaddrinfo(host, 443))
    return False


def parameter(settings: Settings) -> None:
    """In the place of P: be read from, and push when D asks for it."""
    cache = Cache("parameter", settings)
    with listening(settings.port) as listener:
        link, hello = accepted(listener, settings)
    link.send({**cache.about(), "facts": facts(gpu=settings.gpu)})
    cache.connect(hello)
    while (task := link.receive())["do"] != "end":
        cache.fill(task["value"])
        link.send(cache.measure("WRITE", task["atOnce"]) if task["do"] == "push" else {})


def decode(settings: Settings) -> Json:
    """In the place of D: pull, let P push, and return the result."""
    cache = Cache("decode", settings)
    link = Link(_connected(settings), settings.limit)
    link.send({"token": settings.token, **cache.about()})
    other = link.receive()
    own = len(_ucx_log())  # so far it has the way to this process itself
    cache.connect(other)
    cases: list[Json] = []
    for number, (direction, at_once) in enumerate((d, n) for d in ("pull", "push") for n in settings.at_once):
        value = number + 1
        cache.fill(0)
        link.send({"do": "push" if direction == "push" else "fill", "value": value, "atOnce": at_once})
        answer = link.receive()
        measured = answer if direction == "push" else cache.measure("READ", at_once)
        right = cache.holds(value, at_once)
        cases.append({"direction": direction, "atOnce": at_once, **measured, "right": right})
    link.send({"do": "end"})
    return {
        "cases": cases,
        "lanes": lanes(_ucx_log()[own:]),
        "parameter": other["facts"],
        "decode": facts(gpu=settings.gpu),
    }


def listening(port: int) -> socket.socket:
    """A socket for IPv4 and, where there is, IPv6."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _connected(settings: Settings) -> socket.socket:
    """A connection to P, which may still be starting."""
    deadline = time.monotonic() + settings.limit
    while True:
        try:
            return socket.create_connection((settings.peer, settings.port), timeout=_SILENCE_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def accepted(listener: socket.socket, settings: Settings) -> tuple[Link, Json]:
    """The connection of D. Strangers are dropped."""
    listener.settimeout(settings.limit)
    while True:
        connection, _ = listener.accept()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            hello = Link(connection, _SILENCE_S).receive()
            if hello.get("token") == settings.token:
                return Link(connection, settings.limit), hello
        connection.close()


def main(text: str) -> None:
    """Measure, and end without NIXL's destructors, some of which crash."""
    settings = Settings(text)
    if settings.variables:
        # Nothing that a fork would break is loaded yet. The end of D ends the container, and P with it.
        role = "decode" if os.fork() else "parameter"
        os.environ.update(settings.variables[role])
        settings.peer = "localhost" if role == "decode" else ""
    os.environ.update({"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": UCX_LOG.format(os.getpid())})
    if settings.peer:
        result = json.dumps(decode(settings), separators=(",", ":"))
        sys.stdout.write(f"{result}\n")
        Path(RESULT).write_text(result, encoding="utf-8")
    else:
        parameter(settings)
    sys.stdout.flush()
    _flush_ucx_log()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
