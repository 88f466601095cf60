"""The hub token is sent to the hub only, not to redirect targets."""

import asyncio
import hashlib
import os
import sys
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler

from e2e.hub import COMMIT, Hub
from tests.models.written_files import safetensors
from tests.waiting import ended

REPOSITORY = "tiny/model"
TOKEN = "hf_secret"  # noqa: S105 - of this test's own hub


async def test_a_redirect_to_another_host_does_not_carry_the_token(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors({"a": ("BF16", 8)}))
    asked: list[str | None] = []
    elsewhere: list[str | None] = []

    @web.middleware
    async def noted(request: web.Request, handler: Handler) -> web.StreamResponse:
        elsewhere.append(request.headers.get("Authorization"))
        return await handler(request)

    async def redirected(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        headers = {"Location": str(other.make_url(request.path_qs)), "X-Repo-Commit": COMMIT}
        if "/resolve/" in request.path:
            content = (folder / Path(request.path).name).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        return web.Response(status=302, headers=headers)

    storage = Hub(folder, REPOSITORY).application()
    storage.middlewares.append(noted)
    front = web.Application()
    front.router.add_get("/{path:.*}", redirected)
    other, hub = TestServer(storage, host="localhost"), TestServer(front, host="127.0.0.1")
    await other.start_server()
    await hub.start_server()
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("pdinference"),
        *("model", "fetch", "--hub=huggingFace", f"--repository={REPOSITORY}", "--revision=main"),
        f"--folder={tmp_path / 'cache'}",
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HF_ENDPOINT": str(hub.make_url("")).rstrip("/"),
            "HF_TOKEN": TOKEN,
            "HOME": str(tmp_path),
        },
    )
    await ended(process, "pdinference model fetch")
    assert process.returncode == 0
    await hub.close()
    await other.close()
    assert set(asked) == {f"Bearer {TOKEN}"}
    assert len(elsewhere) > 2
    assert set(elsewhere) == {None}
