"""Models in user folders: folders that vLLM cannot load are rejected with a message, and no others."""

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pdinference.cli import main
from pdinference.models.errors import ModelFilesError
from pdinference.models.files.safetensors import Allowance, read_header
from pdinference.models.folder import Expected, check_folder
from tests.models.written_files import (
    CONFIG,
    FIRST,
    MISTRAL,
    POINTER,
    SECOND,
    SHARDED,
    WHOLE,
    Files,
    index,
    safetensors,
    written,
)

FIELD = "spec.model.source.persistentVolumeClaim.path"


def fault(folder: Path, **expected: Any) -> str:
    """The message for the folder; empty if it is valid."""
    try:
        check_folder(folder, Expected(FIELD, **expected))
    except ModelFilesError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "files",
    [
        SHARDED,
        {**SHARDED, "copy.safetensors": b"not of the index, so not loaded"},
        {"config.json": CONFIG, "model.safetensors": WHOLE},
        {"config.json": CONFIG, "model.safetensors": safetensors({})},
        {"config.json": CONFIG, "pytorch_model.bin": b"PK", "training_args.bin": POINTER},
        {"config.json": CONFIG, "pytorch_model.bin": b"PK", "model.safetensors.index.json": index("gone.safetensors")},
        {"config.json": CONFIG, "old.pt": b"PK"},
        {"config.json": CONFIG, "transformer/model.safetensors": WHOLE},
        {"model-Q4_K_M.gguf": b"GGUF"},
        MISTRAL,
        {**MISTRAL, "config.json": POINTER},
        {**MISTRAL, "config.json": CONFIG, FIRST: POINTER},
        {**MISTRAL, **SHARDED, "consolidated.safetensors": POINTER},
        {"config.json": CONFIG, "consolidated.safetensors": WHOLE, "model.safetensors.index.json": index(FIRST)},
    ],
    ids="+".join,
)
def test_what_vllm_loads_passes(tmp_path: Path, files: Files) -> None:
    assert fault(written(tmp_path, files)) == ""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"config.json": CONFIG}, {"load_format": "dummy"}),
        ({"config.json": CONFIG, "model.safetensors": b"?"}, {"load_format": "runai_streamer"}),
        ({"config.json": CONFIG, "model.safetensors": POINTER}, {"load_format": "a-plugin"}),
        ({"model.safetensors": WHOLE}, {"config": False}),
        ({**MISTRAL, "config.json": CONFIG}, {"load_format": "mistral"}),
    ],
)
def test_vllms_own_options_say_what_is_needed(tmp_path: Path, files: Files, expected: dict[str, Any]) -> None:
    assert fault(written(tmp_path, files), **expected) == ""


def test_one_file_is_left_to_vllm(tmp_path: Path) -> None:
    assert fault(written(tmp_path, {"model.gguf": b"GGUF"}) / "model.gguf") == ""


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {},
            "which vLLM needs. It contains nothing. Check spec.model.source.persistentVolumeClaim.path",
        ),
        ({"llama/config.json": CONFIG}, "It contains llama. Set spec.model.source"),
        (
            {"models--a--b/snapshots/c0ffee/config.json": CONFIG},
            "probably {folder}/models--a--b/snapshots/c0ffee",
        ),
        ({"model.safetensors": WHOLE}, "has no config.json"),
        ({**SHARDED, "config.json": b""}, "config.json is not usable as JSON"),
        ({**SHARDED, "config.json": b"\xff"}, "config.json is not usable as JSON"),
        ({**SHARDED, "config.json": b"[" * 100_000}, "config.json is not usable as JSON"),
        ({**SHARDED, "config.json": b"[]"}, "it must be a JSON object"),
        ({**SHARDED, "config.json": POINTER}, "config.json is a Git LFS pointer"),
        ({"config.json": CONFIG}, "has no weights, neither safetensors nor others. It contains config.json. Copy"),
        ({"config.json": CONFIG, "training_args.bin": b"PK"}, "has no weights"),
        ({"config.json": CONFIG, "pytorch_model.bin": POINTER}, "Run `git lfs pull` in the clone, and copy the model"),
        ({"config.json": CONFIG, "model.safetensors": POINTER}, "model.safetensors is a Git LFS pointer"),
        ({**SHARDED, FIRST: POINTER}, f"{FIRST} is a Git LFS pointer instead of the file."),
        (
            {**SHARDED, FIRST: POINTER, SECOND: POINTER},
            "copy the model again. 1 more of 2 files are also invalid.",
        ),
        (
            {name: content for name, content in SHARDED.items() if name != SECOND},
            f"index.json lists files that do not exist: {SECOND}. Copy the complete model.",
        ),
        (
            {"config.json": CONFIG, "model.safetensors.index.json": index("a", "b", "c", "d", "e")},
            "a, b, c and 2 more.",
        ),
        (
            {
                "config.json": CONFIG,
                "model.safetensors.index.json": index(FIRST),
                "original/consolidated.00.pth": b"PK",
            },
            f"lists files that do not exist: {FIRST}",
        ),
        ({**SHARDED, "model.safetensors.index.json": b"{}"}, "is not a valid index of safetensors files"),
        (
            {**SHARDED, "model.safetensors.index.json": b'{"weight_map": {"a": 3}}'},
            "is not a valid index of safetensors files",
        ),
        (
            {**SHARDED, SECOND: WHOLE[:-1]},
            f"{SECOND} is truncated: it has {len(WHOLE) - 1:,} bytes, but {len(WHOLE):,}",
        ),
        ({**SHARDED, SECOND: WHOLE + b"x"}, f"{SECOND} is damaged: it has {len(WHOLE) + 1:,} bytes"),
        ({**SHARDED, SECOND: WHOLE[:20]}, f"{SECOND} is truncated within its header, after 20 bytes. Copy it again."),
        ({**SHARDED, SECOND: b""}, f"{SECOND} is truncated within its header, after 0 bytes."),
        ({**SHARDED, SECOND: b"<!DOCTYPE html><html>"}, f"{SECOND} is not a safetensors file"),
        ({**MISTRAL, "params.json": b"{"}, "params.json is not usable as JSON"),
        ({**MISTRAL, "consolidated.safetensors": POINTER}, "consolidated.safetensors is a Git LFS pointer"),
    ],
)
def test_files_that_vllm_cannot_load_are_rejected(tmp_path: Path, files: Files, said: str) -> None:
    folder = written(tmp_path / "model", files)
    assert said.format(folder=folder) in fault(folder)


def test_a_missing_folder_is_reported_with_its_siblings(tmp_path: Path) -> None:
    written(tmp_path, {"llama/8b/config.json": CONFIG, "qwen/config.json": CONFIG})
    wanted = tmp_path / "mistral" / "7b"
    assert fault(wanted) == (
        f"{wanted} does not exist; {tmp_path} contains llama, qwen. Correct {FIELD}, or copy the model to this folder."
    )


def test_a_link_that_was_copied_without_its_file_is_told(tmp_path: Path) -> None:
    folder = written(tmp_path, SHARDED)
    (folder / SECOND).unlink()
    (folder / SECOND).symlink_to("../../blobs/c0ffee")
    assert f"{SECOND} is a link to ../../blobs/c0ffee, which does not exist. Copy files, not links" in fault(folder)


@pytest.mark.parametrize("name", [".", "config.json", SECOND])
def test_what_may_not_be_read_is_told(tmp_path: Path, name: str) -> None:
    written(tmp_path / "model", SHARDED)
    (tmp_path / "model" / name).chmod(0)
    child = os.fork()
    if child == 0:  # whoever runs the tests may be root, who may read everything
        os.chdir(tmp_path)
        if os.getuid() == 0:
            tmp_path.chmod(0o755)
            os.setuid(65532)
        said = fault(Path("model"))
        os._exit(f"User {os.getuid()} cannot read {Path('model', name)}. Make the model" not in said)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (tmp_path / "model" / name).chmod(0o755)


def test_a_hundred_gigabytes_are_judged_without_reading_them(tmp_path: Path) -> None:
    """Of sparse files, with as many tensors as DeepSeek-V3 has."""
    names = [f"model-{number:05}.safetensors" for number in range(163)]
    folder = written(tmp_path, {"config.json": CONFIG, "model.safetensors.index.json": index(*names)})
    size = 100 * 2**30 // len(names)
    each = size // 560
    tensors = {
        f"model.layers.1.mlp.experts.{number}.down_proj.weight": {
            "dtype": "F8_E4M3",
            "shape": [each],
            "data_offsets": [number * each, (number + 1) * each],
        }
        for number in range(560)
    }
    text = json.dumps(tensors).encode()
    for name in names:
        with (folder / name).open("wb") as stream:
            stream.write(struct.pack("<Q", len(text)) + text)
            stream.truncate(8 + len(text) + 560 * each)
    began = time.process_time()
    assert fault(folder) == ""
    # Reading what the files hold would take minutes on any machine.
    assert time.process_time() - began < 30


def header_size(file: Path) -> int | str:
    """The size of the file according to its header, or the problem of the header."""
    try:
        header = read_header(file, Allowance())
    except ModelFilesError as error:
        return str(error)
    assert header is not None
    return header.size


some_bytes = st.binary(max_size=200)
with_length = st.builds(lambda text: struct.pack("<Q", len(text)) + text, st.binary(max_size=100))


@given(some_bytes | with_length)
def test_any_bytes_are_a_header_or_told_not_to_be(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.safetensors"
    file.write_bytes(content)
    size = header_size(file)
    assert size >= 10 if isinstance(size, int) else size.startswith(str(file))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3)
)
entries = st.fixed_dictionaries(
    {}, optional={"dtype": json_values | st.just("BF16"), "shape": json_values, "data_offsets": json_values}
)


@given(json_values | st.dictionaries(st.text(max_size=5), entries, max_size=3))
def test_any_json_is_parsed_as_a_header_or_rejected(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "json.safetensors"
    text = json.dumps(value).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    size = header_size(file)
    if isinstance(size, int):
        assert isinstance(value, dict)
        assert size >= 8 + len(text)
    else:
        assert "is not a safetensors file, or is damaged: its header" in size


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 50), max_size=5), st.integers(-60, 60))
def test_a_file_is_whole_exactly_at_its_length(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, int], change: int
) -> None:
    folder = written(tmp_path_factory.getbasetemp() / "lengths", {"config.json": CONFIG})
    content = safetensors({name: ("BF16", elements) for name, elements in tensors.items()})
    changed = content[:change] if change < 0 else content + b"x" * change
    (folder / "model.safetensors").write_bytes(changed)
    assert (fault(folder) == "") == (len(changed) == len(content))


def test_the_command_says_it_in_one_line_and_fails(tmp_path: Path) -> None:
    runner = CliRunner()
    command = ["model", "look", f"--folder={tmp_path}", f"--field={FIELD}"]
    ended = runner.invoke(main, command)
    assert ended.exit_code == 1
    (line,) = ended.output.splitlines()
    assert line.startswith(f"Error: {tmp_path} has no config.json")
    written(tmp_path, {"config.json": CONFIG})
    assert runner.invoke(main, command).exit_code == 1
    assert runner.invoke(main, [*command, "--load-format=Dummy"]).exit_code == 0
    written(tmp_path, SHARDED)
    assert "2 files with weights" in runner.invoke(main, command).output
