"""Run several vLLMs in one container, so that they share the devices which a device plug-in gives to it.

An engine that exits or hangs starts anew by itself while the others go on, later each time that it does not come up.
Until each engine has been up once, the end of one ends all: the kubelet then shows the reason, as for a container with
one vLLM. SIGTERM goes to all engines, and this process ends when they have ended.

Arguments: port of the probes; the engines' seconds to start; seconds between two health checks and of one; failures
until an engine counts as hanging. Then for each engine: name, port, number of variables, the variables as NAME=value,
number of words, the command. The names of D's engines begin with `decode`.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_ANSWERS = "decode"
_PAUSES_SECONDS = (0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
"""As the kubelet's: the first new start is at once, and the last pause is that before all later ones. An engine that
was up starts at once again: to start takes long enough."""
_STARTING_SECONDS = 1.0
"""Between two health checks while an engine starts, so that one that dies soon after it came up counts as one that was
up."""
_LONGEST_LINE = 65536
_REQUEST_SECONDS = 5.0


class Timing(NamedTuple):
    """When an engine counts as hanging."""

    startup: float
    period: float
    timeout: float
    failures: int


@dataclass(frozen=True)
class Definition:
    """An engine to run."""

    name: str
    port: int
    environment: dict[str, str]
    command: list[str]


def definitions(words: list[str]) -> Iterator[Definition]:
    """The engines in the arguments."""
    rest = iter(words)
    for name in rest:
        port = int(next(rest))
        environment = dict(next(rest).split("=", 1) for _ in range(int(next(rest))))
        yield Definition(name, port, environment, [next(rest) for _ in range(int(next(rest)))])


def pause_seconds(starts: int) -> float:
    """Seconds until the next start of an engine that had to start this often since it was up last."""
    return _PAUSES_SECONDS[min(max(starts, 1), len(_PAUSES_SECONDS)) - 1]


class Engine:
    """An engine, and how often it had to start.

    Attributes:
        up: Whether its last health check succeeded.
        was_up: Whether any did.
        exit_code: Of its last process.
    """

    def __init__(self, definition: Definition, timing: Timing) -> None:
        self.name = definition.name
        self.up = self.was_up = False
        self.exit_code = 0
        self._definition = definition
        self._timing = timing
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._starts = 0
        self._came_up = False

    async def run(self) -> None:
        """Run the engine once, to its end. A process that hangs is killed."""
        command, environment = self._definition.command, {**os.environ, **self._definition.environment}
        # A pipe of our own: processes of vLLM may hold it open, and asyncio waits for the end of its own pipes.
        log, written = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=written, stderr=written,
            start_new_session=True,
        )  # fmt: skip
        os.close(written)
        self._process, self._starts = process, self._starts + 1
        if self._stopping:
            process.terminate()
        watching = asyncio.create_task(self._watch())
        copying = asyncio.create_task(_copy(log, self.name))
        try:
            self.exit_code = await process.wait()
        finally:
            await _cancelled(watching)
            self._kill()
            await asyncio.to_thread(_reap, process.pid)
            await asyncio.wait([copying], timeout=_REQUEST_SECONDS)  # a process outside the group may hold the pipe
            await _cancelled(copying)
            self._note(up=False)

    async def pause(self) -> None:
        """Wait before the next start."""
        await asyncio.sleep(pause_seconds(self._starts))

    def terminate(self) -> None:
        """Ask vLLM to complete its requests and to end."""
        self._stopping = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def _kill(self) -> None:
        """End vLLM and its processes, which would keep their devices' memory."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _watch(self) -> None:
        """Check the health until the engine hangs, then kill it. As long as it starts, it has more time."""
        timing, began, failures = self._timing, _now(), 0
        while True:
            healthy = await self._is_healthy()
            failures = 0 if healthy else failures + 1
            self._note(up=healthy or (self.up and failures == 1))  # a busy engine may respond late
            late = failures >= timing.failures if self._came_up else _now() - began > timing.startup
            if late and not self._stopping:
                _say(f"{self.name} does not respond, so it starts anew.")
                self._kill()
                return
            await asyncio.sleep(timing.period if self._came_up else min(timing.period, _STARTING_SECONDS))

    async def _is_healthy(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(self._timing.timeout):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._definition.port)
                with contextlib.closing(writer):
                    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    return (await reader.readline()).split()[1:2] == [b"200"]
        return False

    def _note(self, *, up: bool) -> None:
        self._came_up |= up
        if not up and self._process is not None and self._process.returncode is not None:
            if self._came_up:
                self._starts = 0
            self._came_up = False
        self.up, self.was_up = up, self.was_up or up


class Launcher:
    """All engines of the container."""

    def __init__(self, engines: list[Engine]) -> None:
        self._engines = engines
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run the engines until they are to stop, or until one ends before all have been up."""
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._keep(engine)) for engine in self._engines]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if not self._stopping.is_set():
                for task in running:
                    task.cancel()
        codes = [engine.exit_code for engine in self._engines if engine.exit_code]
        return next((code if code > 0 else 128 - code for code in codes), 0)  # as a shell has it for a signal

    def stop(self) -> None:
        """Stop all engines."""
        self._stopping.set()
        for engine in self._engines:
            engine.terminate()

    @property
    def _started(self) -> bool:
        return all(engine.was_up for engine in self._engines)

    async def _keep(self, engine: Engine) -> None:
        """Run an engine again and again."""
        while not self._stopping.is_set():
            await engine.run()
            if self._stopping.is_set():
                return
            _say(f"Error: {engine.name} has ended with exit code {engine.exit_code}.")
            if not self._started:
                return
            pausing = asyncio.create_task(engine.pause())
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([pausing, stopping], return_when=asyncio.FIRST_COMPLETED)
            await _cancelled(pausing, stopping)

    async def answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer a probe."""
        with contextlib.closing(writer), contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                words = (await reader.readline()).split()
                while (await reader.readline()).strip():
                    pass
                status = b"200 OK" if self._holds(words[1:2]) else b"503 Service Unavailable"
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
                await writer.drain()

    def _holds(self, path: list[bytes]) -> bool:
        match path:
            case [b"/startup"]:
                return self._started
            case [b"/readiness"]:
                return any(engine.up for engine in self._engines if engine.name.startswith(_ANSWERS))
            case [b"/liveness"]:
                return True
        return False


def _reap(group: int) -> None:
    """Wait for the killed processes of an engine, whose parent is this process: they free their devices first."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)


async def _copy(log: int, name: str) -> None:
    """Copy the log of an engine, each line with its name."""
    reader, rest = StreamReader(), b""
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(log, "rb"))
    with contextlib.closing(pipe):
        while found := await reader.read(_LONGEST_LINE):
            *lines, rest = (rest + found).split(b"\n")
            if len(rest) >= _LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            _write(name, lines)
        _write(name, [rest] if rest else [])


def _write(name: str, lines: list[bytes]) -> None:
    sys.stderr.buffer.write(b"".join(b"%s: %s\n" % (name.encode(), line) for line in lines))
    sys.stderr.buffer.flush()


async def _cancelled(*tasks: "asyncio.Task[None] | asyncio.Task[bool]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


async def main(arguments: list[str]) -> int:
    """Run all engines; the exit code is that of one which failed."""
    port, failures = int(arguments[0]), int(arguments[4])
    startup, period, timeout = map(float, arguments[1:4])
    timing = Timing(startup, period, timeout, failures)
    launcher = Launcher([Engine(definition, timing) for definition in definitions(arguments[5:])])
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, launcher.stop)
    server = await asyncio.start_server(launcher.answer, port=port)
    async with server:
        return await launcher.run()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
