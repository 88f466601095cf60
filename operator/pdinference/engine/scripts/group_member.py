"""Run vLLM on one of the nodes of an instance, so that all of them start, drain and end together.

vLLM itself does not notice when another node is gone, as long as no request is on its way, and a node that starts again
cannot join those that run. So each node but the first holds a connection to the first: vLLM starts when all are
connected, and a connection that ends makes both ends stop, and the kubelet start them anew.

Node 0 drains for all. But data-parallel ranks have requests of their own: after the drain of node 0, those of the other
nodes may still hold KV cache that D has not read. So they drain then, and node 0 waits for them.

Arguments: node rank, number of nodes, host and port of node 0, seconds between notice and stop, command of vLLM.
"""

import asyncio
import contextlib
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable
from typing import Any

_RETRY_SECONDS = 1
_HELLO_SECONDS = 10
_SILENCE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
"""A node that vanished, with its kernel, is noticed after 30 s."""
BROKEN_EXIT = 75
_GO, _LEAVING, _DRAIN = b"go\n", b"leaving\n", b"drain\n"
_OPTION_OF_RANKS = "--data-parallel-size-local="

Command = list[str]


class Broken(Exception):  # noqa: N818 - ends up as the container's last words
    """The nodes are no longer together."""


class Leader:
    """Node 0, which the others connect to."""

    def __init__(self, nodes: int) -> None:
        self.complete = asyncio.Event()
        self.leaving = asyncio.Event()
        self.left = asyncio.Event()
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._others = range(1, nodes)
        self._members: dict[int, StreamWriter] = {}

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Hold the connection of one of the others."""
        with contextlib.closing(writer):
            try:
                rank = int(await asyncio.wait_for(reader.readline(), _HELLO_SECONDS))
            except (ValueError, OSError, TimeoutError):
                return
            if rank not in self._others:
                return
            self._join(rank, writer)
            with contextlib.suppress(OSError, asyncio.CancelledError):  # cancelled when this process ends
                while line := await reader.readline():
                    if line == _LEAVING:
                        self.leaving.set()
            self._leave(rank, writer)

    def _join(self, rank: int, writer: StreamWriter) -> None:
        _notice_silence(writer)
        self._members[rank] = writer
        if self.complete.is_set():
            self._break(f"node {rank} started anew")
        elif len(self._members) == len(self._others):
            self.complete.set()
            for member in self._members.values():
                member.write(_GO)

    def _leave(self, rank: int, writer: StreamWriter) -> None:
        if self._members.get(rank) is writer:
            del self._members[rank]
        if self.complete.is_set():
            self._break(f"node {rank} is gone")
        if not self._members:
            self.left.set()

    async def drain_others(self) -> None:
        """Let the others drain, and wait until they have."""
        for member in self._members.values():
            member.write(_DRAIN)
        if self._members:
            self.left.clear()
            await self.left.wait()

    def _break(self, why: str) -> None:
        if not self.broken.done():
            self.broken.set_result(why)


async def lead(nodes: int, port: int, notice: float, command: Command, stop: asyncio.Event) -> int:
    """Be node 0: wait for the others, run vLLM, and stop it when this pod or another one has to go."""
    leader = Leader(nodes)
    # Open until this process ends: the end of the connections is what the others wait for.
    await asyncio.start_server(leader.serve, port=port)
    _say(f"Waiting for the other {nodes - 1} of {nodes} nodes.")
    if not await _before(leader.complete.wait(), stop.wait()):
        return 0
    vllm = asyncio.create_task(_run(command, _stop_asked(stop, leader.leaving, notice)))
    try:
        if await _before(leader.broken, asyncio.shield(vllm)):
            raise Broken(leader.broken.result())
        if _has_ranks(command) and (stop.is_set() or leader.leaving.is_set()):
            await leader.drain_others()
        return vllm.result()
    finally:
        await _cancelled(vllm)


async def follow(rank: int, host: str, port: int, command: Command, stop: asyncio.Event) -> int:
    """Be another node: join node 0, run vLLM when it says so, and stay until it is gone."""
    _say(f"Waiting for node 0, {host}.")
    connecting = asyncio.create_task(_joined(rank, host, port))
    if not await _before(connecting, stop.wait()):
        return 0
    reader, writer = connecting.result()
    drain = asyncio.Event()
    with contextlib.closing(writer):
        vllm = asyncio.create_task(_run(command, drain.wait()))
        gone = asyncio.create_task(_end_of(reader, drain))
        leaving = asyncio.create_task(_tell(stop, writer))
        try:
            if not await _before(gone, asyncio.shield(vllm)):
                if drain.is_set() and not stop.is_set():
                    raise Broken("node 0 has drained")
                return vllm.result()
            if stop.is_set():  # node 0 has drained
                return 0
            raise Broken("node 0 is gone")
        finally:
            await _cancelled(vllm, gone, leaving)


async def _joined(rank: int, host: str, port: int) -> tuple[StreamReader, StreamWriter]:
    """A connection to a node 0 that has all others, however long that takes."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            _notice_silence(writer)
            writer.write(b"%d\n" % rank)
            if await reader.readline() == _GO:
                return reader, writer
            writer.close()
        await asyncio.sleep(_RETRY_SECONDS)


async def _run(command: Command, stop: Awaitable[object]) -> int:
    """Run vLLM to its end, which may be asked for; when nobody waits any longer, it is killed."""
    process = await asyncio.create_subprocess_exec(*command)
    asking = asyncio.ensure_future(stop)
    asking.add_done_callback(lambda asked: None if asked.cancelled() else _terminate(process))
    try:
        return await process.wait()
    finally:
        asking.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()


def _terminate(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


async def _stop_asked(stop: asyncio.Event, leaving: asyncio.Event, notice: float) -> None:
    """This pod has to go, or another one said so, and the router had its time to learn it."""
    if not await _before(stop.wait(), leaving.wait()):
        await _before(stop.wait(), asyncio.sleep(notice))


async def _tell(stop: asyncio.Event, writer: StreamWriter) -> None:
    await stop.wait()
    writer.write(_LEAVING)


async def _end_of(reader: StreamReader, drain: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while line := await reader.readline():
            if line == _DRAIN:
                drain.set()


def _has_ranks(command: Command) -> bool:
    """Whether each node has data-parallel ranks of its own; otherwise the nodes share the layers of one."""
    return any(word.startswith(_OPTION_OF_RANKS) for word in command)


async def _before(first: Awaitable[object], second: Awaitable[object]) -> bool:
    """Whether the first ends before the second; the other is cancelled."""
    tasks = [asyncio.ensure_future(first), asyncio.ensure_future(second)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ended = tasks[0].done()
    await _cancelled(*(task for task in tasks if not task.done()))
    return ended


async def _cancelled(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _notice_silence(writer: StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _SILENCE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


async def main(arguments: list[str]) -> int:
    """Run one node; the exit code is vLLM's."""
    (rank, nodes), host, port, notice = map(int, arguments[:2]), arguments[2], int(arguments[3]), float(arguments[4])
    command = arguments[5:]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        if rank == 0:
            return await lead(nodes, port, notice, command, stop)
        return await follow(rank, host, port, command, stop)
    except Broken as broken:
        _say(f"Error: {broken}; all nodes of this instance start anew.")
        return BROKEN_EXIT


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
