"""A hostile hub: its lists, files and headers lead to a message, and nothing is written outside the cache."""

import asyncio
import hashlib
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pdinference.models.errors import ModelError
from pdinference.models.facts import facts_of_hub
from pdinference.models.hubs.hub import Listing, RemoteFile, Repository
from pdinference.models.hubs.hugging_face import HuggingFaceHub
from pdinference.models.hubs.listed_weights import weights_of
from pdinference.models.hubs.remote import listing_of
from pdinference.models.progress import DownloadProgress
from pdinference.models.snapshot import fetch
from tests.hostile.address_space import address_space
from tests.hostile.model_files import CONFIGS, INDEXES, NAMES, WEIGHTS
from tests.memory.configs import LLAMA_1B
from tests.models.written_files import safetensors

__all__ = ["address_space"]  # an autouse fixture

MIB = 1 << 20
COMMIT = "5c1b0e7d2f3a4958b6c7d8e9f0a1b2c3d4e5f607"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def sibling(path: Any, content: bytes = b"", **changed: Any) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()  # noqa: S324 - git's
    return {"rfilename": path, "size": len(content), "blobId": blob, **changed}


class LyingHub:
    """A hub whose answers are set by a test."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"config.json": json.dumps(LLAMA_1B).encode()}
        self.siblings: list[Any] | None = None
        self.commit: Any = COMMIT
        self.info: Handler | None = None
        self.file: Handler | None = None
        self.url = ""

    async def answer_info(self, request: web.Request) -> web.StreamResponse:
        if self.info:
            return await self.info(request)
        siblings = self.siblings or [sibling(path, content) for path, content in self.files.items()]
        return web.json_response({"id": "a/b", "sha": self.commit, "siblings": siblings})

    async def answer_file(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        if self.file and path != "config.json":
            return await self.file(request)
        content = self.files.get(path)
        if content is None:
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound"})
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return web.Response(body=content, headers=headers)


@pytest.fixture
async def hub() -> AsyncIterator[LyingHub]:
    hub, app = LyingHub(), web.Application()
    app.router.add_get("/api/models/{owner}/{name}/revision/{revision}", hub.answer_info)
    app.router.add_get("/{owner}/{name}/resolve/{revision}/{path:.+}", hub.answer_file)
    server = TestServer(app)
    await server.start_server()
    hub.url = str(server.make_url("")).rstrip("/")
    yield hub
    await server.close()


async def fetched(hub: LyingHub, folder: Path) -> str:
    """Why it failed; nothing when it did not."""
    client = HuggingFaceHub(Repository("a/b", "main"), endpoint=hub.url)
    try:
        await asyncio.to_thread(fetch, client, folder, DownloadProgress())
    except ModelError as error:
        said = str(error)
    else:
        said = ""
    assert said.isprintable()
    return said


async def facts(hub: LyingHub) -> dict[str, Any]:
    client = HuggingFaceHub(Repository("a/b", "main"), endpoint=hub.url)
    return (await asyncio.to_thread(facts_of_hub, client))[1]


async def endless(request: web.Request) -> web.StreamResponse:
    """Ten gigabytes, without a length."""
    answer = web.StreamResponse(headers={"ETag": '"x"', "X-Repo-Commit": COMMIT})
    if request.method == "HEAD":
        answer.content_length = 1000
        await answer.prepare(request)
        return answer
    await answer.prepare(request)
    try:
        for _ in range(10_000):
            await answer.write(bytes(MIB))
    except ConnectionError:
        pass
    return answer


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_leads_elsewhere_is_refused(hub: LyingHub, tmp_path: Path, name: str) -> None:
    hub.siblings = [sibling("config.json"), sibling(NAMES[name], b"x")]
    said = await fetched(hub, tmp_path / "cache")
    assert "a file with an invalid path" in said or "an invalid list of files" in said
    assert not list((tmp_path / "cache").iterdir())


SIZES: list[Any] = [-1, 2**63, 2**47, "7", True, 1.5, [], 1e300]
BLOBS: list[Any] = ["x", "../..", 7, "0" * 41, "0" * 40 + "\n"]
LFS: list[Any] = [{"sha256": "../x"}, {"sha256": 7}, [], "x", {"sha256": "F" * 64}]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"size": size} for size in SIZES),
        *({"blobId": blob} for blob in BLOBS),
        *({"lfs": lfs} for lfs in LFS),
        {"rfilename": 7},
        {"rfilename": None},
        {"rfilename": ["a"]},
    ],
)
async def test_a_list_with_anything_in_it_ends_in_a_sentence(
    hub: LyingHub, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    hub.siblings = [sibling("config.json"), sibling("a", **wrong)]
    said = await fetched(hub, tmp_path / "cache")
    assert said.startswith("The hub ")


@pytest.mark.parametrize("commit", ["../../x", "x\ny", "", " ", "a" * 300, "\u202e", "-x", 7, {}])
async def test_an_invalid_commit_is_rejected(hub: LyingHub, tmp_path: Path, commit: Any) -> None:
    hub.commit = commit
    said = await fetched(hub, tmp_path / "cache")
    assert said.startswith("The hub returned an invalid") or commit == ""


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - {"too large", "too many members"}))
def test_a_list_that_is_none_ends_in_a_sentence(name: str) -> None:
    with pytest.raises(ModelError, match="list of files"):
        listing_of(CONFIGS[name], "main")


def test_a_list_of_a_million_files_is_refused_in_bounded_memory() -> None:
    content = b'{"siblings":[' + b",".join([b'{"rfilename":"a"}'] * 1_000_000) + b"]}"
    tracemalloc.start()
    with pytest.raises(ModelError):
        listing_of(content, "main")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 * MIB


async def test_a_list_without_end_is_not_read_to_its_end(hub: LyingHub, tmp_path: Path) -> None:
    hub.info = endless
    assert "is larger than" in await fetched(hub, tmp_path / "cache")


async def test_a_list_that_redirects_for_ever_ends(hub: LyingHub, tmp_path: Path) -> None:
    async def back(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": str(request.url)})

    hub.info = back
    assert "Cannot connect to" in await fetched(hub, tmp_path / "cache")


async def test_a_file_without_end_ends_at_the_size_that_was_listed(hub: LyingHub, tmp_path: Path) -> None:
    hub.file = endless
    hub.siblings = [sibling("config.json", hub.files["config.json"]), sibling("model.safetensors", bytes(1000))]
    folder = tmp_path / "cache"
    assert await fetched(hub, folder) != ""
    assert size_of(tmp_path) < 64 * MIB
    assert not (folder / ".pdinference.json").exists()


async def test_more_than_the_volume_has_is_refused_before_anything_is_sent(hub: LyingHub, tmp_path: Path) -> None:
    hub.siblings = [sibling("config.json"), *(sibling(f"{n}.safetensors", size=2**42) for n in range(9))]
    assert "Enlarge the volume" in await fetched(hub, tmp_path / "cache")


async def test_a_repository_cannot_bring_its_own_manifest(hub: LyingHub, tmp_path: Path) -> None:
    """Else a download that was interrupted would pass for a complete one."""
    forged = json.dumps({"version": 1, "commit": "c", "files": []}).encode()
    for name in (".pdinference.json", ".pdinference.json.new", ".cache/huggingface/x", "._____temp/x"):
        hub.files[name] = forged
    folder = tmp_path / "cache"
    assert await fetched(hub, folder) == ""
    assert {str(file.relative_to(folder)) for file in folder.rglob("*")} == {"config.json", ".pdinference.json"}
    assert json.loads((folder / ".pdinference.json").read_text())["commit"] == COMMIT


async def test_links_that_were_planted_in_the_cache_are_not_followed(hub: LyingHub, tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "cache"
    precious.mkdir()
    (precious / "config.json").write_text("mine")
    folder.mkdir()
    (folder / "inner").symlink_to(precious)
    (folder / "config.json").symlink_to(precious / "config.json")
    (folder / "gone").symlink_to("nowhere")
    hub.files["inner/config.json"] = b"{}"
    assert await fetched(hub, folder) == ""
    assert (precious / "config.json").read_text() == "mine"
    assert not (folder / "inner").is_symlink()
    assert not (folder / "config.json").is_symlink()
    assert not (folder / "gone").is_symlink()


@pytest.mark.parametrize("name", WEIGHTS)
def test_headers_that_are_none_are_unknown(name: str) -> None:
    listing = Listing(COMMIT, (RemoteFile("model.safetensors", 7),))
    try:
        found = weights_of(listing, lambda _, size: WEIGHTS[name][:size])
    except ValueError:
        return
    assert isinstance(found, dict)
    assert found  # how long the file is was not looked at
    assert all(header.size <= 8 for header in found.values())


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_that_is_none_is_unknown(name: str) -> None:
    listing = Listing(COMMIT, (RemoteFile("model.safetensors.index.json", 7), RemoteFile("a", 1)))
    with pytest.raises(ValueError, match=r"\w"):
        weights_of(listing, lambda _, size: INDEXES[name][:size])


async def test_facts_of_a_hub_whose_weights_are_none_are_those_of_the_config(hub: LyingHub) -> None:
    for content in (b"", bytes(100), b"<html>" * 100, safetensors({"a": ("BF16", 4)})[:20]):
        hub.files["model.safetensors"] = content
        found = await facts(hub)
        assert found["config"]["num_hidden_layers"] == LLAMA_1B["num_hidden_layers"]
        assert "checkpoint" not in found
    hub.files["model.safetensors"] = safetensors({"model.a": ("BF16", 4)})
    assert (await facts(hub))["checkpoint"]["elements"] == 4


async def test_a_config_without_end_is_an_error(hub: LyingHub) -> None:
    hub.files["config.json"] = b"x" * (64 * MIB)
    with pytest.raises(ModelError):
        await facts(hub)
