"""`pdinference model` with the real clients and a hub on this machine, in separate processes."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from e2e.hub import COMMIT, Hub
from pdinference.models.errors import ModelError
from pdinference.models.facts import facts_of_folder
from pdinference.models.hubs.hub import Repository
from pdinference.models.hubs.hugging_face import HuggingFaceHub
from pdinference.models.manifest import check
from pdinference.models.progress import DownloadProgress
from pdinference.models.snapshot import fetch
from tests.memory.configs import LLAMA_1B
from tests.models.written_files import safetensors

REPOSITORY = "tiny/model"
WHERE = ("--hub=huggingFace", f"--repository={REPOSITORY}", "--revision=main")


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    folder = tmp_path / "hub"
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_1B))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors({"model.a": ("BF16", 300_000), "b_scale": ("F16", 8)}))
    (folder / "pytorch_model.bin").write_bytes(b"the same weights once more")
    (folder / "onnx" / "model.onnx").write_bytes(b"and again")
    return Hub(folder, REPOSITORY)


@dataclass
class Ended:
    code: int
    output: str
    errors: str


@dataclass
class World:
    """A hub that listens, and a cache."""

    hub: Hub
    url: str
    cache: Path

    async def run(self, *arguments: str) -> Ended:
        """The command, in a process of its own."""
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("pdinference"),
            *arguments,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
                "HF_ENDPOINT": self.url,
                "HOME": str(self.cache.parent),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        return Ended(process.returncode or 0, output.decode(), errors.decode())

    async def fetch(self, repository: str = REPOSITORY, revision: str = "main", url: str = "") -> str:
        """What the command does, here; why it failed comes back, nothing when it did not."""
        hub = HuggingFaceHub(Repository(repository, revision), endpoint=url or self.url)
        try:
            await asyncio.to_thread(fetch, hub, self.cache, DownloadProgress())
        except ModelError as error:
            return str(error)
        return ""

    def check(self) -> str:
        try:
            check(self.cache)
        except ModelError as error:
            return str(error)
        return ""

    def files(self) -> set[str]:
        return {str(file.relative_to(self.cache)) for file in self.cache.rglob("*") if file.is_file()}


@pytest.fixture
async def world(hub: Hub, tmp_path: Path) -> AsyncIterator[World]:
    server = TestServer(hub.application())
    await server.start_server()
    yield World(hub, str(server.make_url("")).rstrip("/"), tmp_path / "cache" / "tiny" / "model" / "main")
    await server.close()


async def test_a_model_is_downloaded_verified_and_marked(world: World) -> None:
    ended = await world.run("model", "fetch", *WHERE, f"--folder={world.cache}")
    assert ended.code == 0, ended.errors
    wanted = {"config.json", "tokenizer.json", "model.safetensors"}
    assert world.files() == wanted | {".pdinference.json"}
    for name in wanted:
        assert (world.cache / name).read_bytes() == (world.hub.folder / name).read_bytes()
    said = json.loads(ended.output)
    size = sum((world.hub.folder / name).stat().st_size for name in wanted)
    assert (said["phase"], said["commit"]) == ("Ready", COMMIT)
    assert said["downloadedBytes"] == said["totalBytes"] == size
    assert said["facts"]["config"]["num_hidden_layers"] == LLAMA_1B["num_hidden_layers"]
    assert said["facts"]["checkpoint"] == {"elements": 300_000, "scaleElements": 8, "scaleBytes": 16, "otherBytes": 0}
    checked = await world.run("model", "check", f"--folder={world.cache}")
    assert COMMIT in checked.output


async def test_what_is_there_is_not_downloaded_again_even_without_a_hub(world: World) -> None:
    await world.fetch()
    sent = list(world.hub.requests)
    assert await world.fetch(url="http://127.0.0.1:9") == ""
    assert world.hub.requests == sent


async def test_two_at_once_download_once(world: World) -> None:
    command = ("model", "fetch", *WHERE, f"--folder={world.cache}")
    first, second = await asyncio.gather(world.run(*command), world.run(*command))
    assert (first.code, second.code) == (0, 0), first.errors + second.errors
    assert world.hub.requests.count("model.safetensors") == 1


async def test_a_connection_that_breaks_is_taken_up_where_it_broke(world: World) -> None:
    world.hub.cuts["model.safetensors"] = [200_000, 150_000]
    assert await world.fetch() == ""
    assert world.hub.requests.count("model.safetensors") == 3
    assert (world.cache / "model.safetensors").read_bytes() == (world.hub.folder / "model.safetensors").read_bytes()


async def test_an_interrupted_download_goes_on_with_the_files_that_are_missing(world: World) -> None:
    (world.hub.folder / "model.safetensors").rename(world.hub.folder / "model-00002.safetensors")
    (world.hub.folder / "model-00001.safetensors").write_bytes(safetensors({"model.z": ("BF16", 1000)}))
    world.cache.mkdir(parents=True)
    shutil.copy(world.hub.folder / "model-00001.safetensors", world.cache)
    (world.cache / "model-00002.safetensors").write_bytes(b"half")
    (world.cache / "model-00009.safetensors").write_bytes(b"of another commit")
    assert "has no complete download" in world.check()
    assert await world.fetch() == ""
    assert "model-00001.safetensors" not in world.hub.requests
    assert "model-00009.safetensors" not in world.files()
    assert world.check() == ""


async def test_a_wrong_hash_is_found_and_mended_by_the_next_try(world: World) -> None:
    world.hub.lies = {"config.json"}  # small files are verified by git's hash
    assert "The download of config.json is damaged" in await world.fetch()
    (world.cache / "model.safetensors").unlink()
    world.hub.lies = {"model.safetensors"}
    assert "The download of model.safetensors is damaged" in await world.fetch()
    assert ".pdinference.json" not in world.files()
    world.hub.lies = set()
    assert await world.fetch() == ""


async def test_what_was_damaged_afterwards_is_told_and_mended(world: World) -> None:
    await world.fetch()
    (world.cache / "model.safetensors").write_bytes(b"short")
    assert "model.safetensors has 5 bytes instead of" in world.check()
    assert await world.fetch() == ""
    assert world.check() == ""


async def test_a_token_is_needed_and_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.hub.token = "hf_right"  # noqa: S105 - a test's
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    refused = await world.fetch()
    assert "spec.model.source.huggingFace.tokenSecret" in refused
    assert "hf_wrong" not in refused
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert await world.fetch() == ""


async def test_gated_terms_are_to_be_accepted(world: World) -> None:
    world.hub.gated = True
    assert f"accept its terms on {world.url}/tiny/model" in await world.fetch()


async def test_what_does_not_exist_is_named(world: World) -> None:
    assert "has no tiny/other that we may read: if it is private" in await world.fetch(repository="tiny/other")
    assert "has no revision nightly" in await world.fetch(revision="nightly")


async def test_a_hub_that_is_away_is_named(world: World) -> None:
    assert "Cannot connect to http://127.0.0.1:9" in await world.fetch(url="http://127.0.0.1:9")


async def test_certificates_that_are_not_there_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/company/ca.crt")
    assert "SSL_CERT_FILE names /etc/company/ca.crt, and this container has no such file" in await world.fetch()


async def test_a_repository_without_a_config_is_no_model(world: World) -> None:
    (world.hub.folder / "config.json").unlink()
    assert "has no config.json" in await world.fetch()


async def test_a_plan_may_ask_the_hub(world: World, tmp_path: Path) -> None:
    resource = {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
        "metadata": {"name": "tiny"},
        "spec": {"model": {"source": {"huggingFace": {"repository": REPOSITORY}}}},
    }
    file = tmp_path / "resource.yaml"
    file.write_text(json.dumps(resource))
    ended = await world.run("plan", "-f", str(file), "--online", "-o", "json")
    assert ended.code == 0, ended.errors
    weights = json.loads(ended.output)["roles"]["decode"]["weightsBytes"]
    assert "headers of the safetensors files" in weights["note"]


async def test_a_plan_may_ask_the_hub_for_a_draft(world: World, tmp_path: Path) -> None:
    source = {"huggingFace": {"repository": REPOSITORY}}
    meta = {"apiVersion": "pdinference.io/v1alpha1", "kind": "PDInference", "metadata": {"name": "tiny"}}
    args = {"speculative-config": {"method": "draft_model", "model": REPOSITORY, "num_speculative_tokens": 2}}
    file, planned = tmp_path / "resource.yaml", []
    for engine in ({}, {"args": args}):
        file.write_text(json.dumps({**meta, "spec": {"model": {"source": source}, "engine": engine}}))
        ended = await world.run("plan", "-f", str(file), "--online", "-o", "json")
        assert ended.code == 0, ended.errors
        assert "does not count the draft" not in ended.errors
        planned.append(json.loads(ended.output)["roles"]["decode"]["kvBytesPerToken"]["value"])
    assert planned[1] == 2 * planned[0]


async def test_weights_without_headers_are_known_by_their_size(world: World, tmp_path: Path) -> None:
    (world.hub.folder / "model.safetensors").unlink()
    (world.hub.folder / "onnx" / "model.onnx").rename(world.hub.folder / "training_args.bin")
    size = (world.hub.folder / "pytorch_model.bin").stat().st_size
    ended = await world.run("model", "inspect", *WHERE)
    assert ended.code == 0, ended.errors
    facts = json.loads(ended.output)["facts"]
    assert facts["checkpoint"] == {"suffix": ".bin", "files": 1, "fileBytes": size}
    assert "pytorch_model.bin" not in world.hub.requests, "no weights are read"
    await world.fetch()
    assert facts == facts_of_folder(world.cache)
    file = tmp_path / "resource.yaml"
    model = {"source": {"huggingFace": {"repository": REPOSITORY}}}
    meta = {"apiVersion": "pdinference.io/v1alpha1", "kind": "PDInference", "metadata": {"name": "tiny"}}
    file.write_text(json.dumps({**meta, "spec": {"model": model}}))
    ended = await world.run("plan", "-f", str(file), "--online", "-o", "json")
    assert ended.code == 0, ended.errors
    note = json.loads(ended.output)["roles"]["decode"]["weightsBytes"]["note"]
    assert note.endswith("Size of 1 .bin file: 0.00 GiB.")


async def test_facts_are_read_without_the_weights(world: World) -> None:
    ended = await world.run("model", "inspect", *WHERE)
    assert ended.code == 0, ended.errors
    assert world.hub.requests.count("model.safetensors") == 1  # its beginning
    facts = json.loads(ended.output)["facts"]
    await world.fetch()
    assert facts == facts_of_folder(world.cache)
    assert facts["checkpoint"]["elements"] == 300_000


async def test_adapters_are_looked_at_where_they_can_be_read(world: World, tmp_path: Path) -> None:
    config = {
        "r": 8,
        "rank_pattern": {"q_proj": 32},
        "target_modules": ["v_proj", "q_proj"],
        "base_model_name_or_path": "owner/base",
        "use_dora": True,
        "bias": "all",
        "modules_to_save": ["lm_head"],
    }
    (world.hub.folder / "adapter_config.json").write_text(json.dumps(config))
    local, odd = tmp_path / "local", tmp_path / "odd"
    for folder, content in ((local, {"r": 16, "target_modules": "all-linear"}), (odd, {"r": "many"})):
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps(content))
    adapters = f"--adapters={REPOSITORY},{local},{odd},/models/absent,owner/absent"
    for command in ("inspect", "fetch"):
        into = [f"--folder={world.cache}"] if command == "fetch" else []
        ended = await world.run("model", command, *WHERE, *into, adapters)
        assert ended.code == 0, ended.errors
        assert json.loads(ended.output.splitlines()[-1])["facts"]["adapters"] == [
            {
                "path": REPOSITORY,
                "rank": 32,
                "modules": ["q_proj", "v_proj"],
                "base": "owner/base",
                "unsupported": ["use_dora", "bias", "modules_to_save"],
            },
            {"path": str(local), "rank": 16, "modules": [], "base": "", "unsupported": []},
        ]


async def test_a_config_too_large_for_a_status_is_not_known(world: World) -> None:
    quantization = {"quant_method": "awq", "modules_to_not_convert": [f"layers.{i}.{'x' * 99}" for i in range(1000)]}
    (world.hub.folder / "config.json").write_text(json.dumps(LLAMA_1B | {"quantization_config": quantization}))
    assert await world.fetch() == ""
    assert facts_of_folder(world.cache) == {}
