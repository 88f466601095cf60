"""The child process: `python -m pdinference.isolation.worker <file descriptors of the lanes>`.

It imports what the workers need, then forks one worker per lane, which takes a millisecond, and forks again when one
ends. It must not import asyncio or a client, because its imports add to the memory of the operator's pod.

Tests: tests/isolation/test_process.py
"""

import contextlib
import ctypes
import gc
import importlib
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Final

from pdinference.isolation.wire import CALL, DONE, KILLED, MAX_REPLY, OUT_OF_MEMORY, RAISED, REPLY, TOO_LONG

READY: Final = b"ready\n"
MEMORY: Final = 64 * 2**20
"""Bytes that a worker may allocate beyond those at its start."""
_CALLS: Final = 2000
"""A worker is replaced after this number of calls, so that leaks do not accumulate."""
_PR_SET_PDEATHSIG: Final = 1
_CLOSED, _REPLACED, _TORN = 0, 1, 2
_IDLE, _WORKING = 0, 1


def main() -> None:
    """Fork workers until the operator closes the lanes or ends."""
    _end_with(os.getppid())
    for number in (signal.SIGINT, signal.SIGTERM):  # the operator closes the lanes when it has finished
        signal.signal(number, signal.SIG_IGN)
    lanes = [socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[1:]]
    # From the operator, which started this process, over a private pipe.
    factory, settings = pickle.load(sys.stdin.buffer)  # noqa: S301
    module, name = factory.rsplit(":", 1)
    tasks = getattr(importlib.import_module(module), name)(settings)
    gc.collect()
    gc.freeze()  # so that collections in the workers do not write to shared memory
    supervisor = _WorkerSupervisor(lanes, tasks)
    os.write(1, READY)
    sys.exit(supervisor.run())


class _WorkerSupervisor:
    """Keeps one worker running for each lane."""

    def __init__(self, lanes: list[socket.socket], tasks: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self._lanes = lanes
        self._tasks = tasks
        self._states = mmap.mmap(-1, len(lanes))  # shared with the workers
        self._running = {self._fork(lane): lane for lane in range(len(lanes))}

    def run(self) -> int:
        while self._running:
            pid, status = os.wait()
            lane = self._running.pop(pid)
            if self._states[lane] == _WORKING:
                self._states[lane] = _IDLE
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                with contextlib.suppress(OSError):  # the operator has closed the lane
                    self._lanes[lane].sendall(REPLY.pack(KILLED, 1) + bytes([number]))
            elif os.waitstatus_to_exitcode(status) == _CLOSED:
                continue
            elif os.waitstatus_to_exitcode(status) != _REPLACED:
                return _TORN  # in the middle of a message; the operator replaces this process
            self._running[self._fork(lane)] = lane
        return 0

    def _fork(self, lane: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = _TORN
            with contextlib.suppress(BaseException):
                _end_with(parent)
                status = self._serve(lane)
            os._exit(status)
        return pid

    def _serve(self, lane: int) -> int:
        for number, other in enumerate(self._lanes):
            if number != lane:
                other.close()
        _limit_memory()
        connection = self._lanes[lane]
        for _ in range(_CALLS):
            header = _received(connection, CALL.size)
            if not header:
                return _CLOSED
            cpu_seconds, seconds, name_length, length = CALL.unpack(header)
            name = _received(connection, name_length).decode()
            payload = _received(connection, length)
            self._states[lane] = _WORKING
            _set_timers(cpu_seconds, seconds)
            outcome, answer = _outcome(self._tasks[name], payload)
            _set_timers(0, 0)
            self._states[lane] = _IDLE
            connection.sendall(REPLY.pack(outcome, len(answer)) + answer)
            if outcome != DONE:
                break
        return _REPLACED


def _set_timers(cpu_seconds: float, seconds: float) -> None:
    """SIGPROF and SIGALRM end the process in any state."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _outcome(task: Callable[[bytes], bytes], payload: bytes) -> tuple[bytes, bytes]:
    try:
        answer = task(payload)
    except MemoryError:
        return OUT_OF_MEMORY, b""
    except BaseException as error:  # noqa: BLE001 - it is the operator that reports it
        frames = "".join(traceback.format_exception(error, limit=-8))[-4000:]
        return RAISED, f"{type(error).__name__}\n{frames}".encode("utf-8", "replace")
    return (DONE, answer) if len(answer) <= MAX_REPLY else (TOO_LONG, b"")


def _received(connection: socket.socket, length: int) -> bytes:
    """Exactly `length` bytes; empty when the operator has closed the lane."""
    chunks = []
    while length > 0:
        chunk = connection.recv(min(length, 2**20))
        if not chunk:
            return b""
        chunks.append(chunk)
        length -= len(chunk)
    return b"".join(chunks)


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - pathlib is not needed otherwise
        pages = int(statm.read().split()[0])
    most = pages * mmap.PAGESIZE + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with(parent: int) -> None:
    """Make the kernel end this process when its parent ends, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_TORN)


if __name__ == "__main__":
    main()
