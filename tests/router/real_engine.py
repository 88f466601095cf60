"""Engines of the real vLLM on CPU, with the tiny model of the demo. One starts in half a minute and more."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import aiohttp

from pdinference.api.names import Role
from tests.ports import free_port

START_S = 800
"""vLLM starts in 8 minutes beside two busy loops."""
_MAKE = Path(__file__).parents[2] / "images/vllm-cpu/tiny_model.py"
_KV_ROLES = {Role.PARAMETER: "kv_producer", Role.DECODE: "kv_consumer"}


async def make_model(folder: Path) -> None:
    """Make the model in a folder, and its adapter in `FOLDER-lora`."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(_MAKE), str(folder))
    assert await asyncio.wait_for(process.wait(), START_S) == 0


@asynccontextmanager
async def vllm(model: Path, role: Role, *options: str) -> AsyncIterator[int]:
    """An engine with the connector Nixl. Gives its port, at which it serves some time later.

    Args:
        model: Its folder.
        role: P or D.
        options: Further ones of vLLM.
    """
    port, side = free_port(), free_port()
    transfer = {"kv_connector": "NixlConnector", "kv_role": _KV_ROLES[role], "kv_buffer_device": "cpu"}
    environment = {
        "HF_HUB_OFFLINE": "1",
        "UCX_NET_DEVICES": "lo",
        "UCX_TLS": "tcp,self",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "fork",  # a forked engine need not import vLLM again
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--model={model}", "--enforce-eager"),
        *("--host=127.0.0.1", f"--port={port}", "--dtype=float32", "--max-model-len=1024"),
        *(f"--kv-transfer-config={json.dumps(transfer)}", *options),
        env={**os.environ, **environment},
    )
    try:
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 60)
        except TimeoutError:
            process.kill()  # else it outlives the tests
            raise


async def serves(client: aiohttp.ClientSession, port: int) -> bool:
    """Whether an engine serves at a port, and nothing else does."""
    try:
        async with client.get(f"http://127.0.0.1:{port}/health") as answer:
            return answer.status == HTTPStatus.OK and answer.headers.get("Server") == "uvicorn"
    except aiohttp.ClientError:
        return False
