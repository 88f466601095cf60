"""ModelScope's real client, against a site on this machine."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pdinference.models.errors import ModelError
from pdinference.models.facts import facts_of_hub
from pdinference.models.hub import Repository
from pdinference.models.manifest import check
from pdinference.models.model_scope import ModelScopeHub
from pdinference.models.progress import Progress
from pdinference.models.snapshot import fetch
from tests.planning.memory.configs import QWEN_7B

REPOSITORY = "Qwen/tiny"
FILES = {"config.json": json.dumps(QWEN_7B).encode(), "model.safetensors": bytes(range(256)) * 400}


def _absent() -> web.Response:
    return web.json_response({"Code": 10010205001, "Success": False, "Message": "not found"}, status=404)


async def _list(request: web.Request) -> web.Response:
    if request.match_info["name"] != "tiny" or request.query["Revision"] != "master":
        return _absent()
    files = [
        {"Path": path, "Size": len(content), "Sha256": hashlib.sha256(content).hexdigest(), "Type": "blob"}
        for path, content in FILES.items()
    ]
    return web.json_response({"Code": 200, "Success": True, "Data": {"Files": files}})


async def _send(request: web.Request) -> web.Response:
    content = FILES[request.query["FilePath"]]
    if request.http_range.start:
        return web.Response(status=206, body=content[request.http_range])
    return web.Response(body=content)


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.setenv("HOME", str(tmp_path))
    application = web.Application()
    application.router.add_get("/api/v1/models/{owner}/{name}/repo/files", _list)
    application.router.add_get("/api/v1/models/{owner}/{name}/repo", _send)
    server = TestServer(application)
    await server.start_server()
    yield str(server.make_url("")).rstrip("/")
    await server.close()


async def test_a_model_is_downloaded_and_verified(site: str, tmp_path: Path) -> None:
    hub, folder, progress = ModelScopeHub(Repository(REPOSITORY, "master"), site), tmp_path / "cache", Progress()
    await asyncio.to_thread(fetch, hub, folder, progress)
    assert check(folder).commit == "master"
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert {file.name for file in folder.iterdir()} == {*FILES, ".pdinference.json"}


async def test_the_config_is_known_without_the_weights(site: str) -> None:
    _, facts = await asyncio.to_thread(facts_of_hub, ModelScopeHub(Repository(REPOSITORY, "master"), site))
    assert facts["config"]["num_hidden_layers"] == QWEN_7B["num_hidden_layers"]
    size = len(FILES["model.safetensors"])
    assert facts["checkpoint"] == {"suffix": ".safetensors", "files": 1, "fileBytes": size}


async def test_of_files_of_other_kinds_the_list_says_the_size(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = {f"pytorch_model-0000{number}-of-00002.bin": bytes(1000 * number) for number in (1, 2)}
    index = {"metadata": {"total_size": 3000}, "weight_map": {str(number): name for number, name in enumerate(shards)}}
    others = {"training_args.bin": bytes(7), "copy.bin": bytes(7), "consolidated.00.pth": bytes(7), "old.pt": bytes(7)}
    changed = {"config.json": FILES["config.json"], **shards, **others}
    changed["pytorch_model.bin.index.json"] = json.dumps(index).encode()
    monkeypatch.setattr(f"{__name__}.FILES", changed)
    hub = ModelScopeHub(Repository(REPOSITORY, "master"), site)
    _, facts = await asyncio.to_thread(facts_of_hub, hub)
    assert facts["checkpoint"] == {"suffix": ".bin", "files": 2, "fileBytes": 3000}
    changed["pytorch_model.bin.index.json"] = b"\xff"
    _, facts = await asyncio.to_thread(facts_of_hub, hub)
    assert facts["checkpoint"] == {"suffix": ".bin", "files": 3, "fileBytes": 3007}


@pytest.mark.parametrize(("name", "revision"), [("Qwen/absent", "master"), (REPOSITORY, "v9")])
async def test_what_does_not_exist_is_named(site: str, tmp_path: Path, name: str, revision: str) -> None:
    hub = ModelScopeHub(Repository(name, revision), site)
    with pytest.raises(ModelError, match=f"ModelScope has no {name} revision {revision}"):
        await asyncio.to_thread(fetch, hub, tmp_path / "cache", Progress())
