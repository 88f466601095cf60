"""A model in a bucket of a real server: `pdinference model` downloads and inspects it, and says what is wrong."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from pdinference.models.errors import ModelError
from pdinference.models.facts import facts_of_hub
from pdinference.models.files.etags import unfinished
from pdinference.models.hubs.bucket import BucketHub
from pdinference.models.manifest import check
from pdinference.models.progress import DownloadProgress
from pdinference.models.snapshot import fetch
from tests.integration.buckets import KEY, Bucket, serving
from tests.memory.configs import LLAMA_1B
from tests.models.written_files import safetensors

WEIGHTS = safetensors({"model.a": ("BF16", 300_000), "b_scale": ("F16", 8)})
FILES = {"config.json": json.dumps(LLAMA_1B).encode(), "tokenizer.json": b"{}", "model.safetensors": WEIGHTS}
OTHERS = {"pytorch_model.bin": b"the same weights once more", "onnx/model.onnx": b"and again"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with serving(tmp_path_factory.mktemp("buckets")) as bucket:
        yield bucket


@pytest.fixture
def bucket(server: Bucket) -> Bucket:
    for found in obstore.list(server.store).collect():
        obstore.delete(server.store, found["path"])
    for path, content in (FILES | OTHERS).items():
        server.put(path, content)
    return server


async def run(*arguments: str, key: tuple[str, str] | None = KEY) -> tuple[int, str, str]:
    """The command in a process of its own, as the Job runs it."""
    credentials = {"AWS_ACCESS_KEY_ID": key[0], "AWS_SECRET_ACCESS_KEY": key[1]} if key else {}
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("pdinference"),
        *("model", *arguments),
        env={**os.environ, **credentials},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), errors.decode()


def where(bucket: Bucket) -> tuple[str, ...]:
    return ("--hub=bucket", f"--repository={bucket.uri}", f"--endpoint={bucket.endpoint}", "--region=us-east-1")


def failed(hub: BucketHub, folder: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        fetch(hub, folder, DownloadProgress())
    return caught.value


async def test_a_model_is_downloaded_inspected_and_checked(bucket: Bucket, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    code, output, errors = await run("fetch", *where(bucket), f"--folder={cache}")
    assert code == 0, errors
    for name, content in FILES.items():
        assert (cache / name).read_bytes() == content
    assert not any((cache / name).exists() for name in OTHERS), "the same weights in other formats"
    said = json.loads(output)
    assert said["downloadedBytes"] == said["totalBytes"] == sum(map(len, FILES.values()))
    assert said["facts"]["checkpoint"] == {"elements": 300_000, "scaleElements": 8, "scaleBytes": 16, "otherBytes": 0}
    code, output, _ = await run("check", f"--folder={cache}")
    assert (code, said["commit"] in output) == (0, True)

    code, output, errors = await run("inspect", *where(bucket))
    assert code == 0, errors
    assert json.loads(output)["facts"] == said["facts"], "by range requests, without a download"


def test_an_interrupted_download_keeps_what_has_not_changed(bucket: Bucket, tmp_path: Path) -> None:
    """The tag is what decides: the other weights are as long as those before."""

    class Interrupted(BucketHub):
        asked: list[str] = []  # noqa: RUF012 - of this test alone
        fails = True

        def download(self, file, commit, folder):  # type: ignore[no-untyped-def]
            self.asked.append(file.path)
            if self.fails and file.path == "tokenizer.json":
                raise ModelError("HubUnreachable", "cut")
            super().download(file, commit, folder)

    hub = Interrupted(bucket.hub()._place)
    assert failed(hub, tmp_path).reason == "HubUnreachable"
    bucket.put("model.safetensors", other := WEIGHTS[:-4] + b"\1\2\3\4")
    hub.fails = False
    hub.asked.clear()
    fetch(hub, tmp_path, DownloadProgress())
    assert sorted(hub.asked) == ["model.safetensors", "tokenizer.json"]
    assert (tmp_path / "model.safetensors").read_bytes() == other
    check(tmp_path)


def test_an_object_that_changes_during_the_download_is_not_mixed_with_another(bucket: Bucket, tmp_path: Path) -> None:
    hub = bucket.hub()
    listing = hub.listing()
    bucket.put("model.safetensors", WEIGHTS[:-4] + b"\1\2\3\4")
    weights = next(file for file in listing.files if file.path == "model.safetensors")
    with pytest.raises(ModelError, match="was changed during the download") as caught:
        hub.download(weights, listing.commit, tmp_path)
    assert caught.value.reason == "Damaged"
    assert not (tmp_path / "model.safetensors").exists()
    assert not unfinished(tmp_path, "model.safetensors").exists()


def test_a_whole_download_does_not_change_with_the_bucket(bucket: Bucket, tmp_path: Path) -> None:
    before = fetch(bucket.hub(), tmp_path, DownloadProgress())
    bucket.put("model.safetensors", WEIGHTS[:-4] + b"\1\2\3\4")
    assert fetch(bucket.hub(), tmp_path, DownloadProgress()) == before
    (tmp_path / "tokenizer.json").unlink()
    assert fetch(bucket.hub(), tmp_path, DownloadProgress()).commit != before.commit, "repaired as it is now"


def test_a_folder_whose_name_begins_so_is_another(bucket: Bucket) -> None:
    (bucket.behind.parent / "tiny-2").mkdir(exist_ok=True)
    (bucket.behind.parent / "tiny-2" / "config.json").write_bytes(b"{}")
    assert bucket.hub(f"{bucket.uri}-2").listing().files[0].path == "config.json"
    assert {file.path for file in bucket.hub().listing().files} == set(FILES | OTHERS)


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"uri": "s3://models/team/absent"}, "NotFound", "s3://models/team/absent"),
        ({"uri": "s3://absent/tiny"}, "NotFound", "Check the bucket"),
        ({"key": (KEY[0], "wrong")}, "AccessDenied", "check the key in the Secret"),
        ({"key": None}, "AccessDenied", "set spec.model.source.bucket.secretName"),
        ({"endpoint": "http://127.0.0.1:9"}, "HubUnreachable", "spec.model.source.bucket.endpoint"),
        ({"endpoint": "https://127.0.0.1:9"}, "HubUnreachable", "spec.model.source.bucket.endpoint"),
    ],
)
def test_what_is_wrong_has_a_reason_and_names_the_field(
    bucket: Bucket, tmp_path: Path, changes: dict[str, Any], reason: str, words: str
) -> None:
    error = failed(bucket.hub(**changes), tmp_path)
    assert error.reason == reason
    assert words in str(error)
    assert KEY[1] not in str(error)
    assert len(str(error)) < 700


def test_objects_that_mark_folders_are_no_files(bucket: Bucket, tmp_path: Path) -> None:
    """As consoles and tools make them: a key with a slash at its end, and nothing in it."""
    for marker in (bucket.behind, bucket.behind / "onnx", bucket.behind / "empty"):
        marker.mkdir(exist_ok=True)
        os.setxattr(marker, "user.etag", b"d41d8cd98f00b204e9800998ecf8427e")
    listed = [found["path"] for found in obstore.list(bucket.store).collect()]
    assert {"empty", "onnx"} <= set(listed), "the server has the markers"
    assert {file.path for file in bucket.hub().listing().files} == set(FILES | OTHERS)
    fetch(bucket.hub(), tmp_path, DownloadProgress())
    check(tmp_path)


def test_without_a_config_it_is_no_model(bucket: Bucket, tmp_path: Path) -> None:
    obstore.delete(bucket.store, "config.json")
    assert "has no config.json" in str(failed(bucket.hub(), tmp_path))
    with pytest.raises(ModelError, match=r"has no config\.json"):
        facts_of_hub(bucket.hub())
