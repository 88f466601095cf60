"""Two PDInferences as processes, with the names of docs/client-programs.md, and LiteLLM before them.

`llama` has P, D and an adapter. `qwen` is not split; its engine is the D engine of `llama` under a second name, because
one more vLLM takes half a minute to start.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from pdinference.api.names import Role
from tests.conftest import REPOSITORY
from tests.ports import free_port
from tests.router.real_engine import START_S, make_model, serves, vllm
from tests.waiting import until

PROGRAMS: Final = REPOSITORY / "build/clients/bin"
"""The environment of tests/clients/requirements.txt (`make build/clients/ready`)."""
KEY, LIMITED_KEY, WRONG_KEY, MASTER_KEY = (
    f"sk-{name}-0123456789abcdef" for name in ("page", "limited", "unknown", "master")
)
_LIMIT: Final = "limited=::1"
"""A token a minute: `LIMITED_KEY` has used up many minutes after an answer, on a slow machine, too."""
_OFFLINE: Final = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false", "DO_NOT_TRACK": "1"}
_PROGRAM_S: Final = 300


@dataclass(frozen=True)
class TwoModels:
    """What programs call, as URLs.

    Attributes:
        client: For requests of the tests' own.
        state: The metrics of the router of `llama`.
    """

    client: aiohttp.ClientSession
    llama: str
    qwen: str
    litellm: str
    state: str

    def placed(self, text: str) -> str:
        """A text of the page with the addresses of here."""
        text = text.replace("http://llama.models.svc", self.llama).replace("http://qwen.models.svc", self.qwen)
        return text.replace("http://litellm.models.svc:4000", self.litellm)

    async def printed(self, program: str) -> str:
        """What a Python program prints, with the clients' environment."""
        process = await asyncio.create_subprocess_exec(
            *(str(PROGRAMS / "python"), "-c", self.placed(program)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), _PROGRAM_S)
        finally:
            _end(process)
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def metric(self, start: str) -> float:
        """The sum of the samples of the router of `llama` whose lines begin so."""
        async with self.client.get(self.state) as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


@asynccontextmanager
async def two_models(folder: Path, gateway: dict[str, Any]) -> AsyncIterator[TwoModels]:
    """Both models and LiteLLM, ready.

    Args:
        folder: For the model and files.
        gateway: LiteLLM's configuration, with the addresses of the page.
    """
    keys = folder / "keys"
    keys.mkdir()
    (keys / "page").write_text(KEY, encoding="ascii")
    (keys / "limited").write_text(LIMITED_KEY, encoding="ascii")
    await make_model(folder / "model")
    adapter = json.dumps({"name": "llama-sql", "path": str(folder / "model-lora")})
    engine = ["--enable-lora", f"--lora-modules={adapter}", "--max-lora-rank=8", "--max-loras=1"]
    engine += ["--enable-auto-tool-choice", "--tool-call-parser=hermes", "--served-model-name"]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aiohttp.ClientSession())
        p = await stack.enter_async_context(vllm(folder / "model", Role.PARAMETER, *engine, "llama"))
        d = await stack.enter_async_context(vllm(folder / "model", Role.DECODE, *engine, "llama", "qwen"))
        known = (f"--api-keys-folder={keys}", f"--api-key-limit={_LIMIT}")
        llama, state = await _router(stack, f"--parameter=127.0.0.1:{p}", f"--decode=127.0.0.1:{d}", *known)
        qwen, _ = await _router(stack, "--handover=none", f"--decode=127.0.0.1:{d}")
        port = free_port()
        found = TwoModels(client, llama, qwen, f"http://127.0.0.1:{port}", f"{state}/metrics")
        config = folder / "litellm.yaml"
        config.write_text(found.placed(yaml.safe_dump(gateway)), encoding="utf-8")
        line = [str(PROGRAMS / "litellm"), f"--config={config}", "--host=127.0.0.1", f"--port={port}"]
        litellm = await _started(stack, *line, env=_environment())

        async def ready() -> bool:
            assert litellm.returncode is None, f"LiteLLM has ended with {litellm.returncode}"
            return all([await serves(client, p), await serves(client, d), await _answers(client, found.litellm)])

        await until(ready, "vLLM and LiteLLM serve", within=START_S)
        yield found


async def _router(stack: AsyncExitStack, *options: str) -> tuple[str, str]:
    """A router process that is ready. Gives the URLs for clients and of its state."""
    program = str(Path(sys.executable).with_name("pdinference"))
    port, state = free_port(), free_port()
    line = [program, "router", "run", "--host=127.0.0.1", "--verification=Off", "--drain-seconds=1"]
    await _started(stack, *line, f"--port={port}", f"--state-port={state}", *options)
    return f"http://127.0.0.1:{port}", f"http://127.0.0.1:{state}"


async def _started(stack: AsyncExitStack, *line: str, env: dict[str, str] | None = None) -> Process:
    process = await asyncio.create_subprocess_exec(*line, env=env)
    stack.push_async_callback(process.wait)
    stack.callback(_end, process)
    return process


def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()


def _environment() -> dict[str, str]:
    keys = {"LLAMA_API_KEY": KEY, "LITELLM_MASTER_KEY": MASTER_KEY}
    return {"PATH": os.environ["PATH"], "HOME": os.devnull, "LANG": "C.UTF-8", **_OFFLINE, **keys}


async def _answers(client: aiohttp.ClientSession, litellm: str) -> bool:
    try:
        async with client.get(f"{litellm}/health/liveliness") as answer:
            return answer.status == HTTPStatus.OK
    except aiohttp.ClientError:
        return False
