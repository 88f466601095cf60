"""Inputs and outputs that are not files of the volume, and outputs of other programs."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from pdinference.engine.batch import ERRORS, IDENTITY, OUTPUT
from pdinference.runner.ids import IdSet
from pdinference.runner.lines import BatchRequestOutput, BatchResponseData
from pdinference.runner.requests import InvalidInputError, survey
from pdinference.runner.results import Results, UnfitOutputError
from tests.hostile.address_space import address_space
from tests.runner.service import line, write_lines

__all__ = ["address_space"]  # an autouse fixture


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def outside(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def a_folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


KINDS = (device, fifo, outside, a_folder, loop, nowhere)


@pytest.mark.parametrize("make", KINDS)
def test_what_is_no_file_of_the_volume_is_no_input(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "in.jsonl")
    with pytest.raises(InvalidInputError, match="The input cannot be read"):
        survey(tmp_path / "in.jsonl", within=tmp_path)


def test_a_link_within_the_volume_is_followed_as_in_a_configmap(tmp_path: Path) -> None:
    (tmp_path / "..2026").mkdir()
    write_lines(tmp_path / "..2026" / "input.jsonl", [line(1)])
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "input.jsonl").symlink_to("..data/input.jsonl")
    assert survey(tmp_path / "input.jsonl", within=tmp_path).total == 1


def test_a_sparse_file_of_terabytes_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "in.jsonl").open("wb") as file:
        file.truncate(10 << 40)
    with pytest.raises(InvalidInputError, match="Split it"):
        survey(tmp_path / "in.jsonl")


@pytest.mark.parametrize("name", [OUTPUT, ERRORS, IDENTITY])
@pytest.mark.parametrize("make", KINDS)
def test_what_is_no_file_in_the_output_is_never_written(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(UnfitOutputError, match=f"{name} in the output folder is a link, a folder or a device"):
        Results(tmp_path, "a")


def test_a_link_does_not_lead_answers_into_another_file(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "folder"
    precious.write_text("mine")
    folder.mkdir()
    for name in (OUTPUT, "batch.new"):
        (folder / name).symlink_to(precious)
        try:
            Results(folder, "a").close()
        except UnfitOutputError:
            (folder / name).unlink()
    assert precious.read_text() == "mine"


def test_a_link_does_not_lead_the_folder_out_of_the_volume(tmp_path: Path) -> None:
    volume, elsewhere = tmp_path / "volume", tmp_path / "elsewhere"
    volume.mkdir()
    elsewhere.mkdir()
    (volume / "inner").mkdir()
    (volume / "out").symlink_to(elsewhere)
    (volume / "in").symlink_to("inner")
    with pytest.raises(UnfitOutputError, match=r"a link leads out.*spec\.output\.persistentVolumeClaim\.path"):
        Results(volume / "out", "a", within=volume)
    assert list(elsewhere.iterdir()) == []
    Results(volume / "in", "a", within=volume).close()


HOSTILE_OUTPUT = {
    "levels without end": b"[" * 1_000_000 + b"\n",
    "levels within": b'{"custom_id":"x","a":' + b"[" * 100_000 + b"\n",
    "invalid UTF-8": b'{"custom_id":"\xff"}\n',
    "NUL": b"\0\n",
    "a line for text": b'{"custom_id":null,"line":"7"}\n',
    "a huge number": b'{"custom_id":null,"line":' + b"9" * 10_000 + b"}\n",
    "neither": b'{"custom_id":null}\n',
    "a list": b'["custom_id"]\n',
    "a number": b'{"custom_id":7}\n',
}


@pytest.mark.parametrize("name", HOSTILE_OUTPUT)
def test_output_that_no_runner_wrote_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    Results(tmp_path, "a").close()
    whole = written(1) + HOSTILE_OUTPUT[name]
    (tmp_path / OUTPUT).write_bytes(whole)
    with pytest.raises(UnfitOutputError, match="not batch output"):
        Results(tmp_path, "a")
    assert (tmp_path / OUTPUT).read_bytes() == whole


@pytest.mark.parametrize("torn", [b"\0" * 5_000_000, b"[" * 100_000, b'{"custom_id":"request-2"', b"\xff\xfe"])
def test_a_torn_end_of_any_bytes_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    Results(tmp_path, "a").close()
    (tmp_path / OUTPUT).write_bytes(written(1) + torn)
    Results(tmp_path, "a").close()
    assert (tmp_path / OUTPUT).read_bytes() == written(1)


@pytest.mark.parametrize("note", [b"[" * 10_000, b'{"identity": 7}', b"null", b'{"identity": "a"', b"x" * 100_000])
def test_a_note_that_makes_no_sense_claims_the_folder(tmp_path: Path, note: bytes) -> None:
    (tmp_path / IDENTITY).write_bytes(note)
    with pytest.raises(UnfitOutputError, match="another input"):
        Results(tmp_path, "a")


def written(number: int) -> bytes:
    response = BatchResponseData(status_code=200, request_id="r", body={})
    return BatchRequestOutput(id="i", custom_id=f"request-{number}", response=response, error=None).as_line()


def test_names_of_512_characters_need_no_more_than_short_ones() -> None:
    """As text they would be 25 MB."""
    ids = IdSet()
    tracemalloc.start()
    for number in range(40_000):
        assert ids.add(f"{number:0512}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 << 20
    assert not ids.add(f"{7:0512}")
    assert len(ids) == 40_000
    assert f"{39_999:0512}" in ids
    assert f"{40_000:0512}" not in ids
