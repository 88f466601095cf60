"""The input is checked as a whole before anything is sent, in words that say what to mend."""

import json
from pathlib import Path
from typing import Any

import pytest

from pdinference.runner.requests import InvalidInputError, requests, survey
from tests.runner.service import line, write_lines

Json = dict[str, Any]


def test_every_request_is_read_once_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join([json.dumps(line(1)), "", json.dumps(line(2)), "   "]))
    assert survey(path).total == 2
    assert [request.custom_id for request in requests(path, without=())] == ["request-1", "request-2"]
    assert [request.custom_id for request in requests(path, without={"request-1"})] == ["request-2"]


def test_the_digest_tells_inputs_apart(tmp_path: Path) -> None:
    one = survey(write_lines(tmp_path / "a", [line(1)]))
    assert survey(write_lines(tmp_path / "b", [line(1)])) == one
    assert survey(write_lines(tmp_path / "c", [line(1, temperature=0)])).digest != one.digest


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "line 2: custom_id"),
        ({**line(2), "custom_id": "request-1"}, "line 2: custom_id 'request-1' was used before"),
        ({**line(2), "method": "GET"}, "line 2: method"),
        ({**line(2), "url": "/metrics"}, "line 2: url"),
        ({**line(2), "url": "http://elsewhere/v1/chat/completions"}, "line 2: url"),
        ({**line(2), "body": "text"}, "line 2: body"),
        (line(2, stream=True), "line 2: body: a batch cannot stream"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path: Path, wrong: Json, words: str) -> None:
    path = write_lines(tmp_path / "in.jsonl", [line(1), wrong])
    with pytest.raises(InvalidInputError, match=words):
        survey(path)


def test_a_long_list_of_problems_is_cut(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{}] * 25)
    with pytest.raises(InvalidInputError, match=r"line 10: .*; and 15 more"):
        survey(path)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_input_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match="no requests"):
        survey(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"No such file.*in\.jsonl"):
        survey(tmp_path / "in.jsonl")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(InvalidInputError, match="line 1"):
        survey(path)
