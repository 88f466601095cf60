"""Clients that keep their connections while the router ends."""

import asyncio
from typing import Any

from openai import AsyncOpenAI

from tests.router import engines
from tests.router.engines import EVENTS
from tests.router.process import Routing, routing
from tests.waiting import until


async def accepts(world: Routing) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    except OSError:
        return False
    writer.close()
    return True


async def test_a_client_that_keeps_its_connection_is_told_before_it_is_closed() -> None:
    """The stream has begun before SIGTERM, and ends after the time in which clients hear of it with other responses."""
    go_on = asyncio.Event()

    async def answer(request: Any) -> Any:
        response = await engines.events(request)
        await response.write(EVENTS[0])
        await go_on.wait()
        await response.write(b"".join(EVENTS[1:]))
        return response

    async with routing("--drain-seconds=60") as world:

        async def refuses() -> bool:
            return not await accepts(world)

        world.decode.fault = answer
        async with AsyncOpenAI(base_url=f"{world.url}/v1", api_key="a", max_retries=0, timeout=60) as client:
            stream = await client.completions.create(model="m", prompt="a", stream=True)
            chunks = aiter(stream)
            await anext(chunks)
            world.process.terminate()
            await until(refuses, "the router accepts no connection any more", within=60)
            go_on.set()
            async for _ in chunks:
                pass
            again = await client.completions.with_raw_response.create(model="m", prompt="a", stream=True)
            assert again.headers["Connection"] == "close"
            async for _ in again.parse():
                pass
        assert await asyncio.wait_for(world.process.wait(), 60) == 0
