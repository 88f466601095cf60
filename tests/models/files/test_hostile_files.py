"""Hostile files of a publisher lead to a message, within limits of time and memory."""

import json
import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.cli import main
from pdinference.models.adapters import facts_in_folder, facts_of_adapters
from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.facts import facts_of_folder
from pdinference.models.files import safetensors as headers
from pdinference.models.files.local_files import indexed_files, read_config
from pdinference.models.files.paths import MANIFEST
from pdinference.models.files.safetensors import Allowance, read_header
from pdinference.models.files.stored_files import read_weights
from pdinference.models.folder import Expected, check_folder
from pdinference.models.manifest import KeptFile, Manifest, check, read_manifest, write_manifest
from pdinference.models.progress import LARGEST, DownloadProgress
from tests.examples import MORE
from tests.hostile.address_space import address_space
from tests.hostile.model_files import CONFIGS, FIRST, INDEXES, NAMES, WEIGHTS, index, tensors, with_header
from tests.memory.configs import LLAMA_1B
from tests.models.written_files import safetensors

__all__ = ["address_space"]  # an autouse fixture

MIB = 1 << 20
MEMORY = 160 * MIB
"""Of one file; what a header of 16 MiB or an index of 64 MiB takes at most."""
CONFIG = json.dumps(LLAMA_1B).encode()


class measured:  # noqa: N801 - reads as a function
    """A block that needs no more memory than this."""

    def __init__(self, most: int = MEMORY) -> None:
        self._most = most

    def __enter__(self) -> None:
        tracemalloc.start()

    def __exit__(self, *_: object) -> None:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < self._most, f"{peak / MIB:.0f} MiB"


def sentence(error: Exception) -> str:
    text = str(error)
    assert len(text) <= 2000
    assert text.isprintable()
    return text


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_is_none_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_bytes(CONFIGS[name])
    with measured(32 * MIB), pytest.raises(ModelFilesError) as caught:
        read_config(tmp_path / "config.json")
    assert "config.json" in sentence(caught.value)
    with pytest.raises(ModelError):
        facts_of_folder(tmp_path)
    with pytest.raises(ModelFilesError):
        check_folder(tmp_path, Expected())
    (tmp_path / "adapter_config.json").write_bytes(CONFIGS[name])
    assert facts_of_adapters([str(tmp_path)], lambda _: pytest.fail("no hub is asked")) == []


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_that_is_none_is_an_error(tmp_path: Path, name: str) -> None:
    file = tmp_path / "model.safetensors.index.json"
    file.write_bytes(INDEXES[name])
    with measured(), pytest.raises(ModelFilesError) as caught:
        indexed_files(file)
    assert "index" in sentence(caught.value)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_none_are_an_error_or_left_to_vllm(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_bytes(CONFIG)
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS[name])
    with measured(), pytest.raises(ModelFilesError) as caught:
        check_folder(tmp_path, Expected())
    assert "model.safetensors" in sentence(caught.value)


def test_a_header_that_is_too_large_is_left_to_vllm(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(CONFIG)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(with_header(b"", 0)[:0] + (20 * MIB).to_bytes(8, "little"))
        file.truncate(1 << 40)  # sparse
    with measured(MIB):
        assert check_folder(tmp_path, Expected()) == 1
        assert read_weights(tmp_path) is None
    assert "checkpoint" not in facts_of_folder(tmp_path)


def test_headers_of_many_files_are_parsed_up_to_a_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty of 12 MiB took 40 s."""
    (tmp_path / "config.json").write_bytes(CONFIG)
    first = tmp_path / "model-00001-of-00040.safetensors"
    first.write_bytes(tensors(0, __metadata__={"a": "b" * 12 * MIB}))
    for number in range(2, 41):
        os.link(first, tmp_path / f"model-{number:05}-of-00040.safetensors")
    parsed: list[int] = []
    parse = headers.parsed_header

    def counted(text: bytes) -> headers.Header:
        parsed.append(len(text))
        return parse(text)

    monkeypatch.setattr(headers, "parsed_header", counted)
    for look in (lambda: check_folder(tmp_path, Expected()), lambda: read_weights(tmp_path)):
        parsed.clear()
        look()
        assert sum(parsed) <= 64 * MIB


def test_sizes_that_no_model_has_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(CONFIG)
    for number in range(5):
        huge = tensors(0, **{str(number): ("BF16", [2**51], [0, 2**52])})
        with (tmp_path / f"model-{number}.safetensors").open("wb") as file:
            file.write(huge)
    assert "checkpoint" not in facts_of_folder(tmp_path)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 40)


@pytest.mark.parametrize("make", [fifo, zeros, a_folder, loop, sparse])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", FIRST])
def test_what_is_no_file_neither_hangs_nor_fills_memory(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    files = {"config.json": CONFIG, "model.safetensors.index.json": index(FIRST), FIRST: safetensors({})}
    for other, content in files.items():
        (tmp_path / other).write_bytes(content)
    (tmp_path / name).unlink()
    make(tmp_path / name)
    with measured(32 * MIB):
        with pytest.raises(ModelFilesError) as caught:
            check_folder(tmp_path, Expected())
        with pytest.raises(ModelError):
            facts_of_folder(tmp_path)
    assert name in sentence(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_does_not_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    listed = {"version": 1, "commit": "c", "files": [{"path": NAMES[name], "size": 0, "sha256": "0" * 64}]}
    (tmp_path / MANIFEST).write_text(json.dumps(listed))
    assert read_manifest(tmp_path) is None
    with pytest.raises(ModelError, match="has no complete download"):
        check(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        *CONFIGS.values(),
        b'{"version": 1}',
        b'{"version": 1, "commit": 7, "files": []}',
        b'{"version": 1, "commit": "c", "files": [{"path": "a", "size": -1, "sha256": ""}]}',
        b'{"version": 1, "commit": "c", "files": [{"path": "a", "size": 1e300, "sha256": ""}]}',
        b'{"version": 1, "commit": "c", "files": [{"path": "a", "size": true, "sha256": ""}]}',
        b'{"version": 1, "commit": "c", "files": {"a": 1}}',
    ],
)
def test_a_manifest_that_makes_no_sense_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    assert read_manifest(tmp_path) is None


@pytest.mark.parametrize("make", [fifo, zeros, a_folder, loop])
def test_a_file_of_a_download_that_was_exchanged_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    write_manifest(tmp_path, Manifest("c", (KeptFile("model.safetensors", 3, "0" * 64),)))
    make(tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors is not a file"):
        check(tmp_path)


def test_a_manifest_is_not_written_through_a_link(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "folder"
    precious.write_text("mine")
    folder.mkdir()
    for name in (MANIFEST, f"{MANIFEST}.new"):
        (folder / name).symlink_to(precious)
    write_manifest(folder, Manifest("c", ()))
    assert precious.read_text() == "mine"
    assert read_manifest(folder) == Manifest("c", ())


def test_infinite_numbers_in_a_config_are_unknown_and_no_error(tmp_path: Path) -> None:
    """Configs of Mamba models have `time_step_limit: [0.0, Infinity]`, which Python reads."""
    (tmp_path / "config.json").write_bytes(b'{"time_step_limit": [0.0, Infinity], "a": NaN, "b": 1e999}')
    assert read_config(tmp_path / "config.json") == {"time_step_limit": [0.0, None], "a": None, "b": None}


@pytest.mark.parametrize("value", [2**70, -1, True, "8", [8], {"a": 8}, None, 1.5])
def test_a_rank_that_is_none_makes_the_adapter_unknown(tmp_path: Path, value: Any) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": value}))
    assert facts_in_folder("a/b", tmp_path) is None


def test_what_a_job_reports_is_bounded_and_printable() -> None:
    wide = {"adapters": [{"path": "p", "modules": ["m" * 253] * 64}] * 50, "config": {"model_type": "llama"}}
    progress = DownloadProgress(facts=wide, problem=("Damaged", "\x1b[31m" + "é\u202e\n" * 100_000))
    content = progress.as_json()
    assert content["facts"] == {"config": {"model_type": "llama"}}
    assert content["message"].isprintable()
    assert len(json.dumps(content)) <= LARGEST
    progress.facts = {"config": {"a": "x" * LARGEST}}
    assert "facts" not in progress.as_json()


def test_the_command_says_a_hostile_name_in_printable_text(tmp_path: Path) -> None:
    (tmp_path / "\x1b[31mred\n").write_text("")
    (tmp_path / "config.json").write_bytes(CONFIG)
    ended = CliRunner().invoke(main, ["model", "look", f"--folder={tmp_path}"])
    assert ended.exit_code == 1
    assert ended.output.rstrip("\n").isprintable()


SEEDS = [
    (FIRST, safetensors({"model.a": ("BF16", 4), "b": ("F16", 2)})),
    ("model.safetensors.index.json", index(FIRST, FIRST)),
    ("config.json", json.dumps({**LLAMA_1B, "quantization_config": {"bits": 4, "ignore": ["re:.*"]}}).encode()),
    ("adapter_config.json", json.dumps({"r": 8, "rank_pattern": {"a": 4}, "target_modules": ["q_proj"]}).encode()),
]


def looked_at(folder: Path) -> None:
    """All that reads the files of a model: each succeeds or ends in a sentence."""
    for look in (
        lambda: check_folder(folder, Expected()),
        lambda: facts_of_folder(folder),
        lambda: facts_in_folder("a/b", folder),
        lambda: read_header(folder / FIRST, Allowance()),
    ):
        try:
            look()
        except (ModelFilesError, ModelError) as error:
            sentence(error)


def with_seeds(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in SEEDS:
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_files_torn_anywhere_end_in_a_sentence(tmp_path: Path, seed: int) -> None:
    name, content = SEEDS[seed]
    folder = with_seeds(tmp_path)
    for length in range(len(content)):
        (folder / name).write_bytes(content[:length])
        looked_at(folder)


@given(st.integers(0, len(SEEDS) - 1), st.randoms(use_true_random=False), st.integers(1, 5))
@settings(max_examples=150 * MORE, deadline=None)
def test_mutated_files_end_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, seed: int, source: random.Random, changes: int
) -> None:
    name, content = SEEDS[seed]
    changed = bytearray(content)
    for _ in range(changes):
        start = source.randrange(len(changed) + 1)
        with_what = source.choice(
            [b"9" * 30, b"-", b'"', b"[", b"]", b"{", b"}", b"null", b"1e999", b"\xff", b"\0", b""]
        )
        changed[start : start + source.randrange(9)] = with_what
    folder = with_seeds(tmp_path_factory.getbasetemp() / "mutated")
    (folder / name).write_bytes(changed)
    looked_at(folder)
