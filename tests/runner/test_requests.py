"""The complete input is checked before the first request, with messages that help to correct it."""

import json
from pathlib import Path
from typing import Any

import pytest

from pdinference.runner.lines import BatchRequestInput
from pdinference.runner.requests import InvalidInputError, requests, survey
from tests.runner.service import line, write_lines

Json = dict[str, Any]


def test_every_request_is_read_once_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join([json.dumps(line(1)), "", json.dumps(line(2)), "   "]))
    found = survey(path)
    assert found.total == 2
    for known in ([], ["request-1"]):
        todo = [item.custom_id for item in requests(path, found, ids=known, lines=())]
        assert todo == ["request-1", "request-2"][len(known) :]


def test_a_byte_order_mark_is_no_part_of_the_first_request(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    path = tmp_path / "in.jsonl"
    path.write_text("\ufeff" + json.dumps(line(1)) + "\r\n" + json.dumps(line(2)), encoding="utf-8")
    found = survey(path)
    assert (found.total, dict(found.wrong)) == (2, {})
    assert len([*requests(path, found, ids=(), lines=())]) == 2


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
def test_what_is_wrong_is_named_by_its_line_and_stops_no_other(tmp_path: Path, wrong: Json, words: str) -> None:
    path = write_lines(tmp_path / "in.jsonl", [line(1), wrong, line(3)])
    found = survey(path)
    assert found.total == 3
    assert found.wrong[2].problem.startswith(words)
    todo = list(requests(path, found, ids=(), lines=()))
    assert [item.custom_id for item in todo if isinstance(item, BatchRequestInput)] == ["request-1", "request-3"]
    assert found.wrong[2] in todo
    assert found.wrong[2] not in requests(path, found, ids=(), lines={2})


def test_a_long_list_of_problems_is_cut(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{}] * 25)
    with pytest.raises(InvalidInputError, match=r"no requests.*line 10: .*; and 15 more"):
        survey(path)


def test_a_file_with_too_many_wrong_lines_is_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdinference.runner.requests.MOST_WRONG", 3)
    with pytest.raises(InvalidInputError, match=r"More than 3 lines are not requests. line 2"):
        survey(write_lines(tmp_path / "in.jsonl", [line(1), {}, {}, {}, {}]))


def test_a_file_with_too_many_lines_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdinference.runner.requests.MOST_LINES", 3)
    with pytest.raises(InvalidInputError, match="more than 3 lines"):
        survey(write_lines(tmp_path / "in.jsonl", [line(number) for number in range(4)]))


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [line(1), line(2)])
    found = survey(path)
    write_lines(path, [line(1), {}])
    with pytest.raises(InvalidInputError, match="was changed while the batch ran"):
        list(requests(path, found, ids=(), lines=()))
    write_lines(path, [line(1), line(3)])
    with pytest.raises(InvalidInputError, match="was changed while the batch ran"):
        list(requests(path, found, ids=(), lines=()))


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
