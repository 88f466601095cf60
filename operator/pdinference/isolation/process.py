"""The operator's side of the child process: starts it, replaces it, and makes calls."""

import asyncio
import contextlib
import logging
import pickle
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from pdinference.isolation import wire
from pdinference.isolation.calls import BusyError, EndedError
from pdinference.isolation.fair_queue import FairQueue
from pdinference.isolation.worker import MEMORY, READY

_LOG = logging.getLogger(__name__)
_GRACE_S: Final = 2.0
"""Time after a call's deadline in which its end must be reported; the kernel ends a worker in milliseconds."""
_CHUNK: Final = 1024
_START_S: Final = 60.0
_RESTART_S: Final = 1.0
_MOST_WAITING: Final = 64
_MOST_WAITING_OF_ONE: Final = 32
_EACH: Final = 256
"""Work of the shortest call. That of others grows with the bytes of the payload."""


@dataclass(frozen=True)
class ChildProgram:
    """The program of the child process.

    Attributes:
        factory: `module:function`; returns the tasks by name.
        settings: Argument of the factory.
    """

    factory: str
    settings: object


@dataclass(frozen=True)
class LaneLimits:
    """The limits of a call in a lane.

    Attributes:
        cpu_seconds: CPU time of the function, which does not depend on the load of the machine.
        seconds: Wall time of the function.
        patience: How long the caller waits, including time in the queue.
    """

    cpu_seconds: float
    seconds: float
    patience: float


@dataclass(frozen=True, slots=True)
class _Call:
    task: str
    payload: bytes
    reply: "asyncio.Future[bytes]"


class Lane:
    """A connection to one worker, which makes one call at a time, within limits."""

    def __init__(self, name: str, limits: LaneLimits, ended: Counter) -> None:
        self._name = name
        self._limits = limits
        self._ended = ended
        self._turns: FairQueue[_Call] = FairQueue(
            most=_MOST_WAITING, most_of_one=_MOST_WAITING_OF_ONE, work=lambda call: _EACH + len(call.payload)
        )

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        """See `Calls`."""
        call = _Call(task, payload, asyncio.get_running_loop().create_future())
        if (displaced := self._turns.put(turn, call, group=client)) is not None and not displaced.reply.done():
            displaced.reply.set_exception(BusyError("Too many examinations are waiting. Try again."))
        try:
            async with asyncio.timeout(self._limits.patience):
                return await call.reply
        except TimeoutError:
            raise BusyError(
                f"No examination ran within {self._limits.patience:g} s because others were waiting. Try again."
            ) from None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Make calls until the connection breaks."""
        while True:
            call = await self._turns.get()
            if call.reply.done():  # the caller went away
                continue
            try:
                outcome, answer = await self._exchange(call, reader, writer)
            except (OSError, EOFError, TimeoutError, asyncio.CancelledError) as error:
                if not call.reply.done():
                    call.reply.set_exception(BusyError("The process for examinations was replaced. Try again."))
                if isinstance(error, asyncio.CancelledError):
                    raise
                return
            if not call.reply.done():
                self._resolve(call.reply, outcome, answer)

    async def _exchange(
        self, call: _Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[bytes, bytes]:
        writer.write(wire.call_header(self._limits.cpu_seconds, self._limits.seconds, call.task, call.payload))
        writer.write(call.payload)
        async with asyncio.timeout(self._limits.seconds + _GRACE_S):
            await writer.drain()
            outcome, length = wire.REPLY.unpack(await reader.readexactly(wire.REPLY.size))
            if length > wire.MAX_REPLY:
                raise EOFError
            return outcome, await reader.readexactly(length)

    def _resolve(self, reply: "asyncio.Future[bytes]", outcome: bytes, answer: bytes) -> None:
        if outcome == wire.DONE:
            reply.set_result(answer)
            return
        sentence, reason = self._sentence(outcome, answer)
        self._ended.labels(self._name, reason).inc()
        reply.set_exception(EndedError(sentence))

    def _sentence(self, outcome: bytes, answer: bytes) -> tuple[str, str]:
        if outcome == wire.RAISED:
            name, _, frames = answer.decode("utf-8", "replace").partition("\n")
            _LOG.error("An examination failed:\n%s", frames)
            return f"The examination failed ({name}). This is a bug of the operator; see its log.", "error"
        if outcome == wire.KILLED and answer == bytes([signal.SIGPROF]):
            text, reason = f"took more than {self._limits.cpu_seconds:g} s of CPU time and was ended", "time"
        elif outcome == wire.KILLED and answer == bytes([signal.SIGALRM]):
            # Not the spec's fault: what needs much CPU time meets the other limit first, unless the node is busy.
            return (
                f"The examination took longer than {self._limits.seconds:g} s and was ended, although it had less than "
                f"{self._limits.cpu_seconds:g} s of CPU time. The operator's node is busy. Try again."
            ), "time"
        elif outcome in {wire.OUT_OF_MEMORY, wire.TOO_LONG}:
            text, reason = f"needed more than {MEMORY // 2**20} MiB of memory and was ended", "memory"
        else:
            text, reason = f"crashed (signal {answer[0] if answer else 0})", "crash"
        return f"The examination {text}. Make the spec smaller or simpler.", reason


class IsolatedProcess:
    """The child process and its lanes.

    Args:
        program: Its program.
        lanes: Limits of each lane by name.
        registry: Registry for the count of calls that did not complete.
    """

    def __init__(self, program: ChildProgram, lanes: Mapping[str, LaneLimits], registry: CollectorRegistry) -> None:
        self._program = program
        ended = Counter(
            "pdinference_examinations_ended",
            "Examinations that were ended, by lane and reason (time, memory, crash, error).",
            ["lane", "reason"],
            registry=registry,
        )
        self.lanes = {name: Lane(name, limits, ended) for name, limits in lanes.items()}
        self.ready = asyncio.Event()
        self.pid = 0

    async def keep(self) -> None:
        """Keep the process running until this is cancelled."""
        while True:
            try:
                await self._once()
                _LOG.error("The process for examinations ended and is restarted")
            except (OSError, EOFError, TimeoutError):
                _LOG.exception("The process for examinations did not start; retrying")
            finally:
                self.ready.clear()
            await asyncio.sleep(_RESTART_S)

    async def _once(self) -> None:
        """Run one process until a lane breaks."""
        pairs = [socket.socketpair() for _ in self.lanes]
        process = None
        try:
            theirs = [their.fileno() for _, their in pairs]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pdinference.isolation.worker", *map(str, theirs)),
                pass_fds=theirs,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            for _, their in pairs:
                their.close()
            await self._begin(process)
            connections = [await asyncio.open_connection(sock=own) for own, _ in pairs]
            await self._serve(connections)
        finally:
            for own, their in pairs:
                own.close()
                their.close()
            if process is not None:
                await _end(process)

    async def _begin(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        self.pid = process.pid
        process.stdin.write(pickle.dumps((self._program.factory, self._program.settings)))
        process.stdin.close()
        async with asyncio.timeout(_START_S):
            if await process.stdout.readline() != READY:
                raise EOFError("no ready message")
        self.ready.set()

    async def _serve(self, connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        lanes = zip(self.lanes.values(), connections, strict=True)
        serving = [asyncio.create_task(lane.serve(*connection), name="lane") for lane, connection in lanes]
        try:
            await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            for _, writer in connections:
                writer.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for the process, which ends when its lanes are closed; then kill it. The kernel ends its workers with it."""
    # asyncio.timeout of Python 3.11.2 (Debian 12) raises no TimeoutError in a task that was cancelled before, as here.
    ended = asyncio.create_task(_ended(process))
    try:
        await asyncio.wait({ended}, timeout=_GRACE_S)
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.wait({ended}, timeout=_GRACE_S)
    finally:
        ended.cancel()


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for the process, and for its workers: they have its output open, and asyncio frees it with the last one."""
    while process.stdout is not None and await process.stdout.read(_CHUNK):
        pass
    await process.wait()
