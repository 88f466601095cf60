"""The end of a router process."""

import asyncio
import socket
from contextlib import ExitStack, suppress

import aiohttp
import pytest

from pdinference.router.choice import policies
from pdinference.router.dispatch import Rules
from pdinference.router.pods import Pods
from pdinference.router.run import Settings, run
from tests.ports import free_port
from tests.router.engines import D, Engine
from tests.waiting import LONG_S, until


async def test_a_router_whose_watch_fails_says_why_and_is_unready_while_it_drains(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pdinference.router.run._prepare_process", lambda: None)  # of a process of its own
    fails = asyncio.Event()

    async def discover() -> None:
        await fails.wait()
        raise KeyError("the cause")

    engine = Engine("d", D)
    await engine.start()
    engine.go_on.clear()
    rules = Rules(None, policies("least_loaded", whole=True))
    settings = Settings(rules, "127.0.0.1", free_port(), free_port(), drain_seconds=LONG_S)
    clients, state = (f"http://127.0.0.1:{port}" for port in (settings.port, settings.state_port))
    pods = Pods(roles=rules.roles)
    pods.observe({engine.observed.uid: engine.observed})
    running = asyncio.create_task(run(settings, pods, discover))

    async with aiohttp.ClientSession() as client:

        async def listens() -> bool:
            try:
                async with client.get(f"{clients}/health"):
                    return True
            except aiohttp.ClientConnectorError:
                return False

        async def refuses() -> bool:
            return not await listens()

        async def readiness() -> int:
            async with client.get(f"{state}/readyz") as answer:
                return answer.status

        await until(listens, "the router listens")
        assert await readiness() == 200
        asked = asyncio.create_task(client.post(f"{clients}/v1/completions", json={"prompt": "a"}))
        await engine.arrived.wait()
        fails.set()
        with ExitStack() as idle:
            await connected_at_each_step(settings.port, idle)
            await until(refuses, "the router accepts no connection any more")
            assert await readiness() == 503
            assert "KeyError: 'the cause'" in caplog.text
            engine.go_on.set()
            async with await asked as answer:
                assert (answer.status, answer.headers["Connection"]) == (200, "close")
            with pytest.raises(RuntimeError, match="has ended") as caught:
                await asyncio.wait_for(running, LONG_S / 4)
    assert isinstance(caught.value.__cause__, KeyError)
    await engine.stop()


async def connected_at_each_step(port: int, stack: ExitStack) -> None:
    """Connect at each step of the event loop, and send nothing. aiohttp alone waits for the one of its last step.

    Args:
        port: Where to.
        stack: Closes the connections.
    """
    for _ in range(20):
        connection = stack.enter_context(socket.socket())
        connection.setblocking(False)
        with suppress(BlockingIOError, ConnectionRefusedError):
            connection.connect(("127.0.0.1", port))
        await asyncio.sleep(0)
