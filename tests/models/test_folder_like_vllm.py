"""The check of folders compared with the libraries that load them: it rejects no folder that they accept."""

import json
import struct
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.models.errors import ModelFilesError
from pdinference.models.files.torch_files import refuse_cut_off
from pdinference.models.files.weight_files import weight_files
from pdinference.models.folder import Expected, check_folder
from tests.models.written_files import MISTRAL, POINTER, SHARDED, WHOLE, Files, index, written

pytestmark = pytest.mark.vllm

NAMES = ["model.safetensors", "consolidated.safetensors", "pytorch_model.bin", "optimizer.pt", "x.pt"]
CONFIG = SHARDED["config.json"]


def passes(folder: Path) -> bool:
    try:
        check_folder(folder, Expected())
    except ModelFilesError:
        return False
    return True


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["BF16", "U8", "F8_E4M3", "F4", "NONE", ""]),
                "shape": st.lists(st.integers(-1, 4), max_size=2),
                "data_offsets": st.lists(st.integers(-1, 12), max_size=3),
            }
        ),
        max_size=3,
    ),
    st.integers(0, 16),
)
def test_a_file_that_the_library_opens_passes(
    tmp_path_factory: pytest.TempPathFactory, header: dict[str, Any], rest: int
) -> None:
    library = import_module("safetensors")  # not always installed
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(rest)
    try:
        library.deserialize(content)
    except library.SafetensorError:
        return
    folder = written(tmp_path_factory.getbasetemp() / "library", {"config.json": CONFIG, "model.safetensors": content})
    assert passes(folder)


def vllm_finds_weights(folder: Path) -> bool:
    from vllm.config.load import LoadConfig  # noqa: PLC0415
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader  # noqa: PLC0415

    try:
        _, files, *_ = DefaultModelLoader(LoadConfig())._prepare_weights(str(folder), None, None, True, None)
    except (RuntimeError, FileNotFoundError):
        return False
    return not any(Path(file).read_bytes() == POINTER for file in files)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from([WHOLE, POINTER])),
    st.sampled_from([None, index("model.safetensors"), index("gone.safetensors")]),
    st.booleans(),
)
def test_a_folder_in_which_vllm_finds_weights_passes(
    tmp_path_factory: pytest.TempPathFactory, weights: Files, listed: bytes | None, mistral: bool
) -> None:
    folder = written(tmp_path_factory.mktemp("folder"), {"config.json": CONFIG, **weights})
    if listed is not None:
        written(folder, {"model.safetensors.index.json": listed})
    if mistral:
        written(folder, {"params.json": MISTRAL["params.json"]})
    if vllm_finds_weights(folder):
        assert passes(folder)


BINARY = [
    "model.safetensors",
    "a.bin",
    "b.bin",
    "training_args.bin",
    "my_optimizer.bin",
    "x.pt",
    "optimizer.pt",
    "y.pth",
]


@given(st.sets(st.sampled_from([*BINARY, ".hidden.bin", "sub/z.bin"])))
def test_the_files_that_count_are_those_that_vllm_loads(
    tmp_path_factory: pytest.TempPathFactory, names: set[str]
) -> None:
    from vllm.config.load import LoadConfig  # noqa: PLC0415
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader  # noqa: PLC0415

    folder = written(tmp_path_factory.mktemp("folder"), dict.fromkeys(names, b"x"))
    try:
        _, files, *_ = DefaultModelLoader(LoadConfig())._prepare_weights(str(folder), None, None, True, None)
    except RuntimeError:
        files = []
    assert {Path(file).name for file in files} == set(weight_files(names).names)


def test_a_file_that_torch_loads_passes_and_one_cut_off_does_not(tmp_path: Path) -> None:
    torch = import_module("torch")
    whole, cut = tmp_path / "whole.bin", tmp_path / "cut.bin"
    torch.save({"a": torch.zeros(100_000)}, whole)
    size = whole.stat().st_size
    assert refuse_cut_off(whole) == size
    old = tmp_path / "old.bin"
    torch.save({"a": torch.zeros(4)}, old, _use_new_zipfile_serialization=False)
    assert refuse_cut_off(old) == old.stat().st_size
    for length in (0, 4, 1000, size // 2, size - 30):
        cut.write_bytes(whole.read_bytes()[:length])
        with pytest.raises((RuntimeError, EOFError, OSError)):
            torch.load(cut, weights_only=True)
        with pytest.raises(ModelFilesError, match=r"is truncated|is empty"):
            refuse_cut_off(cut)
