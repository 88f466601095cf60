"""The router as a process of its own."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.ports import free_port
from tests.router.engines import D, Engine, P
from tests.waiting import until


@dataclass
class Routing:
    """A router process, with one P and one D."""

    client: aiohttp.ClientSession
    parameter: Engine
    decode: Engine
    port: int
    process: Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def memory(self, name: str = "VmRSS") -> int:
        """Bytes in memory now (`VmRSS`), or at most since `forget_peak` (`VmHWM`)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="ascii")


@asynccontextmanager
async def routing(*more: str, files: int = 1024) -> AsyncIterator[Routing]:
    """A router process that is ready.

    Args:
        more: Further options.
        files: Its soft limit on open files.
    """
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        engines = [Engine("p", P), Engine("d", D)]
        for engine in engines:
            await engine.start()
            stack.push_async_callback(engine.stop)
        port, state = free_port(), free_port()
        pods = [f"--{name}=127.0.0.1:{one.port}" for name, one in zip(("parameter", "decode"), engines, strict=True)]
        program = str(Path(sys.executable).with_name("pdinference"))
        line = [program, "router", "run", "--host=127.0.0.1", "--verification=Off", f"--port={port}"]
        line += [f"--state-port={state}", "--drain-seconds=1", "--no-log-requests", *pods, *more]
        router = await asyncio.create_subprocess_exec("sh", "-c", f'ulimit -S -n {files}; exec "$@"', "-", *line)
        stack.push_async_callback(router.wait)
        stack.callback(_end, router)

        async def ready() -> bool:
            assert router.returncode is None, f"the router has ended with {router.returncode}"
            try:
                async with client.get(f"http://127.0.0.1:{state}/readyz") as answer:
                    return answer.ok
            except aiohttp.ClientError:
                return False

        await until(ready, "the router is ready")
        yield Routing(client, engines[0], engines[1], port, router)


def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
