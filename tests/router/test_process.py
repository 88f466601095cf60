"""The router as a process of its own."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from tests.ports import free_port
from tests.router.engines import D, Engine, P
from tests.waiting import until

_FILES = 64
_STREAMS = 100


async def test_it_takes_as_many_files_as_the_container_allows() -> None:
    """Containers may begin with a limit of 1,024, and each stream takes two."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        engines = [Engine("p", P), Engine("d", D)]
        for engine in engines:
            await engine.start()
            stack.push_async_callback(engine.stop)
        port, state = free_port(), free_port()
        pods = [
            f"--{name}=127.0.0.1:{engine.port}" for name, engine in zip(("prefill", "decode"), engines, strict=True)
        ]
        line = [
            str(Path(sys.executable).with_name("pdinference")),
            "router",
            "run",
            "--host=127.0.0.1",
            "--verification=Off",
        ]
        line += [f"--port={port}", f"--state-port={state}", "--drain-seconds=1", *pods]
        router = await asyncio.create_subprocess_exec("sh", "-c", f'ulimit -S -n {_FILES}; exec "$@"', "-", *line)
        stack.push_async_callback(router.wait)
        stack.callback(router.terminate)

        async def ready() -> bool:
            try:
                async with client.get(f"http://127.0.0.1:{state}/readyz") as answer:
                    return answer.ok
            except aiohttp.ClientError:
                return False

        await until(ready, "the router is ready")
        engines[1].go_on.clear()

        async def asked() -> int:
            async with client.post(f"http://127.0.0.1:{port}/v1/completions", json={"prompt": "a"}) as answer:
                return answer.status

        asking = [asyncio.create_task(asked()) for _ in range(_STREAMS)]

        async def all_at_once() -> bool:
            return len(engines[1].raw) >= _STREAMS

        await until(all_at_once, f"D has {_STREAMS} requests", within=30)
        engines[1].go_on.set()
        assert set(await asyncio.gather(*asking)) == {200}
