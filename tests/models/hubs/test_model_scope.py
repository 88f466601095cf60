"""ModelScope's real client, against a site on this machine."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from e2e.model_scope_site import REVISION, ModelScopeSite
from pdinference.models.errors import ModelError
from pdinference.models.facts import facts_of_hub
from pdinference.models.hubs.hub import Repository
from pdinference.models.hubs.model_scope import ModelScopeHub
from pdinference.models.manifest import check
from pdinference.models.progress import DownloadProgress
from pdinference.models.snapshot import fetch
from tests.memory.configs import QWEN_7B

REPOSITORY = "Qwen/tiny"
FILES = {
    "config.json": json.dumps(QWEN_7B).encode(),
    "model.safetensors": bytes(range(256)) * 400,
    "assets/template.jinja": b"{{ messages }}",
}


@dataclass
class World:
    """A site that listens, and its files."""

    site: ModelScopeSite
    url: str
    folder: Path

    def add(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    def hub(self, name: str = REPOSITORY, revision: str = REVISION) -> ModelScopeHub:
        return ModelScopeHub(Repository(name, revision), self.url)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "site"
    folder.mkdir()
    site = ModelScopeSite(folder, REPOSITORY)
    server = TestServer(site.application())
    await server.start_server()
    made = World(site, str(server.make_url("")).rstrip("/"), folder)
    for path, content in FILES.items():
        made.add(path, content)
    yield made
    await server.close()


async def test_a_model_is_downloaded_and_verified(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    await asyncio.to_thread(fetch, world.hub(), folder, DownloadProgress())
    assert check(folder).commit == REVISION
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {".pdinference.json"} | {
        Path(name).name for name in FILES
    }
    of_the_model = [request for request in world.site.requests if "/models/" in request]
    assert len(of_the_model) == 1 + len(FILES)
    assert all(f"/{REPOSITORY}/" in request and f"Revision={REVISION}" in request for request in of_the_model)


async def test_the_config_is_known_without_the_weights(world: World) -> None:
    _, facts = await asyncio.to_thread(facts_of_hub, world.hub())
    assert facts["config"]["num_hidden_layers"] == QWEN_7B["num_hidden_layers"]
    size = len(FILES["model.safetensors"])
    assert facts["checkpoint"] == {"suffix": ".safetensors", "files": 1, "fileBytes": size}


async def test_of_files_of_other_kinds_the_list_says_the_size(world: World) -> None:
    shards = {f"pytorch_model-0000{number}-of-00002.bin": bytes(1000 * number) for number in (1, 2)}
    index = {"metadata": {"total_size": 3000}, "weight_map": {str(number): name for number, name in enumerate(shards)}}
    others = {"training_args.bin": bytes(7), "copy.bin": bytes(7), "consolidated.00.pth": bytes(7), "old.pt": bytes(7)}
    world.remove("model.safetensors")
    for name, content in (shards | others).items():
        world.add(name, content)
    world.add("pytorch_model.bin.index.json", json.dumps(index).encode())
    _, facts = await asyncio.to_thread(facts_of_hub, world.hub())
    assert facts["checkpoint"] == {"suffix": ".bin", "files": 2, "fileBytes": 3000}
    world.add("pytorch_model.bin.index.json", b"\xff")
    _, facts = await asyncio.to_thread(facts_of_hub, world.hub())
    assert facts["checkpoint"] == {"suffix": ".bin", "files": 3, "fileBytes": 3007}


@pytest.mark.parametrize(("name", "revision"), [("Qwen/absent", "master"), (REPOSITORY, "v9")])
async def test_what_does_not_exist_is_named(world: World, tmp_path: Path, name: str, revision: str) -> None:
    with pytest.raises(ModelError, match=f"ModelScope has no {name} revision {revision}"):
        await asyncio.to_thread(fetch, world.hub(name, revision), tmp_path / "cache", DownloadProgress())
