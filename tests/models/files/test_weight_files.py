"""Weight files without headers: the files that vLLM loads, and their total size."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pdinference.cli import main
from pdinference.memory import StoredFiles
from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.facts import facts_of_folder
from pdinference.models.files.stored_files import read_weights
from pdinference.models.files.weight_files import weight_files
from pdinference.models.folder import Expected, check_folder
from pdinference.models.hubs.hub import Listing, RemoteFile
from pdinference.models.hubs.listed_weights import weights_of
from tests.hostile.model_files import INDEXES
from tests.memory.configs import LLAMA_1B
from tests.models.written_files import safetensors

GIB = 2**30
FIRST, SECOND = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"
INDEX = "pytorch_model.bin.index.json"
COMMIT = "5c1b0e7d2f3a4958b6c7d8e9f0a1b2c3d4e5f607"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 976\n"


def index(*files: str) -> bytes:
    return json.dumps(
        {"metadata": {"total_size": 1}, "weight_map": {str(number): file for number, file in enumerate(files)}}
    ).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_1B))
    return tmp_path


def sparse(folder: Path, **sizes: int) -> None:
    """Files of a size that take no space."""
    for name, size in sizes.items():
        with (folder / name).open("wb") as file:
            file.truncate(size)


@pytest.mark.parametrize(
    ("there", "suffix", "loaded"),
    [
        (["pytorch_model.bin", "training_args.bin", "old.pt"], ".bin", ["pytorch_model.bin"]),
        (["model.safetensors", "pytorch_model.bin"], ".safetensors", ["model.safetensors"]),
        (["model.safetensors", "consolidated.safetensors"], ".safetensors", ["model.safetensors"]),
        (["consolidated.safetensors", "x.bin"], ".safetensors", ["consolidated.safetensors"]),
        (["b.pt", "a.pt", "optimizer.pt", "consolidated.00.pth"], ".pt", ["a.pt", "b.pt"]),
        (["my_optimizer.bin", "x.pt"], ".bin", []),
        (["._pytorch_model.bin", "pytorch_model.bin"], ".bin", ["pytorch_model.bin"]),
        (["unet/model.safetensors", "pytorch_model.bin"], ".bin", ["pytorch_model.bin"]),
        (["consolidated.00.pth", "model.ckpt"], ".safetensors", []),
        ([], ".safetensors", []),
    ],
)
def test_the_first_kind_that_is_there_is_loaded(there: list[str], suffix: str, loaded: list[str]) -> None:
    files = weight_files(there)
    assert (files.suffix, list(files.names)) == (suffix, loaded)


@pytest.mark.parametrize(
    ("files", "count", "size"),
    [
        ({FIRST: 10 * GIB, SECOND: 3 * GIB, "training_args.bin": 7}, 2, 13 * GIB),
        ({FIRST: 10 * GIB, SECOND: 3 * GIB, "pytorch_model.bin": 13 * GIB}, 3, 26 * GIB),
        ({"pytorch_model.bin": 13 * GIB, "model.pt": 7}, 1, 13 * GIB),
    ],
)
def test_sizes_of_files_in_a_folder(folder: Path, files: dict[str, int], count: int, size: int) -> None:
    sparse(folder, **files)
    assert read_weights(folder) == StoredFiles(".bin", count, size)
    assert facts_of_folder(folder)["checkpoint"] == {"suffix": ".bin", "files": count, "fileBytes": size}
    assert check_folder(folder, Expected()) == count


def test_files_beside_those_of_the_index_do_not_count(folder: Path) -> None:
    sparse(folder, **{FIRST: 10, SECOND: 20, "pytorch_model.bin": 30})
    (folder / INDEX).write_bytes(index(FIRST, SECOND, FIRST))
    assert read_weights(folder) == StoredFiles(".bin", 2, 30)


DAMAGED = ("nothing", "half", "a list", "invalid UTF-8", "another folder", "dots", "null", "100,000 files", "too large")
UNFIT = {"no files": index(), "a file": index("gone.bin"), **{name: INDEXES[name] for name in DAMAGED}}


@pytest.mark.parametrize("name", UNFIT)
def test_an_index_that_vllm_does_not_read_is_no_obstacle(folder: Path, name: str) -> None:
    sparse(folder, **{"pytorch_model.bin": 30, "second.bin": 3})
    (folder / INDEX).write_bytes(UNFIT[name])
    assert read_weights(folder) == StoredFiles(".bin", 2, 33)
    assert check_folder(folder, Expected()) == 2


def test_a_shard_that_is_missing_is_named(folder: Path) -> None:
    sparse(folder, **{FIRST: 10})
    (folder / INDEX).write_bytes(index(FIRST, SECOND))
    for look in (read_weights, lambda where: check_folder(where, Expected())):
        with pytest.raises(
            ModelFilesError, match=f"{INDEX} lists files that do not exist: {SECOND}. Copy the complete"
        ):
            look(folder)
    with pytest.raises(ModelError, match=SECOND):
        facts_of_folder(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (POINTER, "is a Git LFS pointer"),
        (b"", "pytorch_model.bin is empty"),
        (b"PK\x03\x04" + bytes(100_000), "pytorch_model.bin is truncated: it has 100,004 bytes. Copy it again"),
    ],
    ids=["a pointer", "empty", "without its end"],
)
def test_a_file_that_is_not_whole_has_no_size(folder: Path, content: bytes, said: str) -> None:
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ModelFilesError, match=said):
        read_weights(folder)
    with pytest.raises(ModelFilesError, match=said):
        check_folder(folder, Expected())


def test_a_folder_or_a_device_named_as_weights_is_no_file(folder: Path) -> None:
    (folder / "pytorch_model.bin").symlink_to("/dev/zero")
    with pytest.raises(ModelFilesError, match="it is no regular file"):
        read_weights(folder)
    (folder / "pytorch_model.bin").unlink()
    (folder / "pytorch_model.bin").mkdir()
    with pytest.raises(ModelFilesError, match="Is a directory"):
        read_weights(folder)


def test_more_than_any_model_has_is_not_known(folder: Path) -> None:
    sparse(folder, **{f"{number}.bin": 1 << 43 for number in range(1025)})
    assert read_weights(folder) is None
    assert "checkpoint" not in facts_of_folder(folder)
    for file in folder.glob("*.bin"):
        file.unlink()
    for number in range(10_001):
        (folder / f"{number}.bin").write_bytes(b"x")
    assert read_weights(folder) is None


def listing(**files: int) -> Listing:
    return Listing(COMMIT, tuple(RemoteFile(path, size) for path, size in files.items()))


@pytest.mark.parametrize(
    ("files", "content", "known"),
    [
        ({FIRST: 10, SECOND: 20, "x.bin": 7}, None, StoredFiles(".bin", 3, 37)),
        ({FIRST: 10, SECOND: 20, "x.bin": 7}, index(FIRST, SECOND), StoredFiles(".bin", 2, 30)),
        ({FIRST: 10, SECOND: 20}, b"\xff", StoredFiles(".bin", 2, 30)),
        ({FIRST: 10}, index(FIRST, SECOND), None),
        ({FIRST: 10, SECOND: 0}, None, None),
        ({"a.pt": 5, "consolidated.00.pth": 9}, None, StoredFiles(".pt", 1, 5)),
        ({"weights/pytorch_model.bin": 5}, None, None),
        ({"consolidated.00.pth": 9}, None, None),
    ],
    ids=["all", "indexed", "damaged index", "a shard is missing", "no size", "pt", "in a folder", "pth"],
)
def test_sizes_in_the_list_of_a_hub(files: dict[str, int], content: bytes | None, known: StoredFiles | None) -> None:
    def start(path: str, size: int) -> bytes:
        assert path == INDEX, "nothing else is read"
        assert content is not None
        return content[:size]

    more = {} if content is None else {INDEX: 1}
    assert weights_of(listing(**files, **more), start) == known


def wanted(**files: int) -> set[str]:
    return {file.path for file in listing(**files).wanted()}


def test_weights_are_downloaded_though_a_folder_holds_safetensors() -> None:
    files: Any = {
        "pytorch_model.bin": 9,
        "adapter/x.safetensors": 1,
        "tf_model.h5": 9,
        "onnx/model.onnx": 9,
        "a.txt": 1,
    }
    assert wanted(**files) == {"pytorch_model.bin", "adapter/x.safetensors", "a.txt"}
    assert wanted(**files, **{"model.safetensors": 9}) == {"model.safetensors", "adapter/x.safetensors", "a.txt"}
    assert wanted(**{"x.pt": 1, "consolidated.00.pth": 1}) == {"x.pt", "consolidated.00.pth"}


def test_a_hidden_file_is_not_loaded(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(safetensors({"a": ("BF16", 4)}))
    (folder / "._model.safetensors").write_bytes(b"what macOS leaves on volumes")
    assert check_folder(folder, Expected()) == 1


def test_the_command_looks_at_them(folder: Path) -> None:
    sparse(folder, **{FIRST: 10 * GIB, SECOND: 3 * GIB})
    ended = CliRunner().invoke(main, ["model", "look", f"--folder={folder}"])
    assert "2 files with weights were looked at" in ended.output
    ended = CliRunner().invoke(main, ["model", "inspect", f"--folder={folder}"])
    assert json.loads(ended.stdout)["facts"]["checkpoint"]["fileBytes"] == 13 * GIB
